create table ta (id int primary key, v text); create table tb (id int primary key, v text); create table tc (id int primary key, v text); create table td (id int primary key, v text); create table te (id int primary key, v text)

create table tf (id int primary key, v text); create table tg (id int primary key, v text); create table th (id int primary key, v text)

select pgq_node.register_location('cq','root1','dbname=r',false), pgq_node.create_node('cq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,c) from (values ('p1','cq'),('p2','cq'),('p3',null),('p4',null)) x(q,c)

select * from londiste.global_add_table('p1','public.tf')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from public.evs('cq')

select londiste.global_add_table('p2','public.tf'), londiste.global_add_table('p3','public.tf'), londiste.global_add_table('p4','public.tf')

select * from public.evs('cq')

select * from londiste.local_add_table('p1','public.tf')

rollback

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

select * from londiste.local_add_table('p1','public.tf',array['merge_all'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from trgs('tf')

select * from londiste.local_add_table('cq','public.tf')

select * from trgs('tf')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from public.evs('cq')

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

select * from londiste.local_add_table('p3','public.tf',array['merge_all'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

select * from londiste.local_add_table('cq','public.tf',array['expect_sync'])

select * from trgs('tf')

select * from londiste.local_add_table('p1','public.tf',array['no_merge'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from trgs('tf')

select * from londiste.local_add_table('p2','public.tf',array['no_merge'],null,'public.tg')

select * from londiste.local_remove_table('cq','public.tf')

select * from londiste.local_remove_table('p1','public.tf')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

select * from londiste.global_remove_table('p1','public.tf')

select * from londiste.global_remove_table('cq','public.tf')

select * from londiste.global_add_table('p1','public.tf')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.local_add_table('p1','public.tf',array['expect_sync'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

create function trf() returns trigger language plpgsql as 'begin return new; end'; create trigger "AAA" after insert or update or delete on tb for each row execute function trf()

create trigger "0" after insert or update or delete on tc for each row execute function pgq.logutriga('xx')

create trigger "0" before insert or update or delete on td for each row execute function pgq.logutriga('xx','SKIP')

create trigger "0" before insert or update or delete on te for each row execute function pgq.logutriga('xx','SKIP'); create trigger "1" before insert or update or delete on te for each row execute function pgq.logutriga('xx','SKIP')

-- differs: a trigger that fires first is reported
select * from londiste.local_add_table('cq','public.tb')

select * from londiste.local_add_table('cq','public.tc')

select * from londiste.local_add_table('cq','public.td')

select * from londiste.local_add_table('cq','public.te')

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

select * from londiste.local_add_table('cq','public.tc',array['tgflags=B'])

select * from trgs('tc')

select * from londiste.local_add_table('cq','public.td',array['tgflags=BIUD'])

select * from trgs('td')

select * from londiste.local_add_table('cq','public.te',array['tgflags=BIUD'])

select * from trgs('te')

select londiste.local_remove_table(queue_name,table_name) from londiste.table_info where local

-- differs: SKIP means BEFORE, names are quoted
select * from londiste.local_add_table('cq','public.td',array['tgflags=BIUD','SKIP'])

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('td')

select * from londiste.local_add_table('cq','public.te',array['tgflags=BIUDS'])

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['tgflags=BIUDS'],'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['tgflags=BIUDS'],'public.ta','root')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq2','public.ta',array['tgflags=BIUDS'],'public.ta','leaf')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

drop trigger "zzz__londiste_cq" on ta; drop trigger _londiste_cq2 on ta

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['bogus','xx=yy','when=id>1','pkey=v','deny'],'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['tgflags=Zx'],'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['tgflags=AQ'],'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['tgflags=L'],'public.ta','root')

select * from trgs('ta')

select * from londiste.create_trigger('cq','public.ta',array['skip_truncate','expect_sync','no_merge','merge_all','virtual_table'],'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['expect_sync','no_merge','merge_all'],'public.ta','branch')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['backup','tgflags=BI','ev_extra1=x'],'public.tb','leaf')

select * from trgs('tb')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['backup','tgflags=S'],'public.tb','leaf')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('tb')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('cq','public.ta',array['backup','tgflags=J'],'public.tg','leaf')

select * from trgs('tg')
