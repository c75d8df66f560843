create table pk1 (id int primary key, v text); create table fk1 (id int primary key, r int constraint fk1_r references pk1)

select pgq_node.register_location('cq','root1','dbname=r',false), pgq_node.create_node('cq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,c) from (values ('p4',null),('p3',null)) x(q,c)

select londiste.global_add_table(q, t) from (values ('p4'),('p3')) a(q), (values ('public.pk1'),('public.fk1')) b(t)

select londiste.local_add_table('p4',t,array['merge_all']) from (values ('public.pk1'),('public.fk1')) b(t)

select londiste.drop_table_fkey('public.fk1','fk1_r')

select londiste.local_set_table_state(queue_name,table_name,null,'ok') from londiste.table_info where local

select count(*) from londiste.get_valid_pending_fkeys('p3')

select count(*) from londiste.get_valid_pending_fkeys('p4')

select londiste.local_remove_table(queue_name, table_name) from londiste.table_info where local

select londiste.local_add_table('p4','public.pk1',array['no_merge']), londiste.local_add_table('p3','public.fk1',array['no_merge'])

select londiste.local_set_table_state(queue_name,table_name,null,'ok') from londiste.table_info where local

select count(*) from londiste.get_valid_pending_fkeys('p3')

select count(*) from londiste.get_valid_pending_fkeys('p4')

select londiste.local_remove_table(queue_name, table_name) from londiste.table_info where local

select londiste.local_add_table('cq',t) from (values ('public.pk1'),('public.fk1')) b(t)

select count(*) from londiste.get_valid_pending_fkeys('cq')

create table events (id int primary key, ts timestamptz not null, v text); create index on events(ts)

create table plain (id int primary key, d date)

select londiste.create_partition('events','events_2011_01','id','ts','2011-01-01'::timestamptz,'month')

select londiste.create_partition('events','events_2011_01','id','ts','2011-01-01'::timestamptz,'month')

select londiste.create_partition('events','public.events_2011_02_03','id','ts','2011-02-03 10:11'::timestamptz,'day')

select londiste.create_partition('events','public.events_h','id','ts','2011-02-03 10:11'::timestamptz,'hour')

select londiste.create_partition('events','public.events_y','id','ts','2011-02-03 10:11'::timestamptz,'year')

select londiste.create_partition('events','public.events_w','id','ts','2011-02-03 10:11'::timestamptz,'week')

select londiste.create_partition('events','public.events_bad','id','ts','2011-02-03 10:11'::timestamptz,'fortnight')

select londiste.create_partition('events','public.events_nofield','id',null,'2011-02-03 10:11'::timestamptz,'month')

select londiste.create_partition('public.plain','public.plain_2011_02','id','d','2011-02-03 10:11'::timestamptz,'month')

select londiste.create_partition('public.nope','public.nope_2011_02','id','d','2011-02-03 10:11'::timestamptz,'month')

select londiste.create_partition('public.plain','public.plain_nopk','','d','2011-02-03 10:11'::timestamptz,'month')

select c.relname, conname, pg_get_constraintdef(k.oid) from pg_class c join pg_constraint k on conrelid=c.oid where c.relname ~ '^(events_|plain_)' order by 1,2

select tablename, indexdef from pg_indexes where tablename ~ '^(events_|plain_)' order by 1,2

select * from londiste.list_obsolete_partitions('events','1 month','month')

select * from londiste.list_obsolete_partitions('events','1 month','day')

select * from londiste.list_obsolete_partitions('events','1 month','hour')

select * from londiste.list_obsolete_partitions('events','1 month','year')

select * from londiste.list_obsolete_partitions('events','1000 years','month')

select * from londiste.list_obsolete_partitions('events','1 month','eon')

select londiste.is_obsolete_partition('public.events_2011_01','1 month','month'), londiste.is_obsolete_partition('public.events_2011_01','100 years','month'), londiste.is_obsolete_partition('public.events_h','1 month','month')

select londiste.is_obsolete_partition('events_2011_02_03','1 month','day'), londiste.is_obsolete_partition('events_2011_02_03','1 month','month')

select londiste.is_obsolete_partition('nope','1 month','day')

select * from londiste.drop_obsolete_partitions('events','1 month','month')

select * from londiste.drop_obsolete_partitions('events','1 month','day')

select relname from pg_class where relname ~ '^events_' and relkind='r' order by 1

create table acted (id int primary key, ts timestamptz, "odd ""col" text); create table acted2 (id int); create function act() returns trigger language plpgsql as 'begin return new; end'

create trigger "Odd name" before insert or update of "odd ""col" on acted for each row when (new.id > 1) execute function act(); create trigger off after delete on acted for each row execute function act('a', 'b''c'); alter table acted disable trigger off; create trigger rep after truncate on acted for each statement execute function act(); alter table acted enable replica trigger rep; create trigger alw after insert on acted for each statement execute function act(); alter table acted enable always trigger alw

create rule no_delete as on delete to acted where old.id = 7 do instead nothing; create rule also as on update to acted do also insert into acted2 values (new.id); alter table acted disable rule also

select londiste.create_partition('acted','acted_2011_01','id','ts','2011-01-01'::timestamptz,'month')

select tgname, tgenabled, pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'acted_2011_01'::regclass and not tgisinternal order by 1

select rulename, ev_enabled, pg_get_ruledef(oid) from pg_rewrite where ev_class = 'acted_2011_01'::regclass order by 1
