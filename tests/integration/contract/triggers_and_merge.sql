create table ta (id int primary key, v text); create table tb (id int primary key, v text); create table tc (id int primary key, v text); create table td (id int primary key, v text); create table te (id int primary key, v text)

create table tf (id int primary key, v text); create table tg (id int primary key, v text); create table th (id int primary key, v text)

select pgq_node.register_location('rq','root1','dbname=r',false), pgq_node.create_node('rq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,null) from (values ('p1'),('p2'),('p3'),('p4')) x(q)

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',null,'public.ta','root')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',null,'public.ta','root')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['backup'],'public.ta','root')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=BIQ'],'public.ta','root')

select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=AIUJ','ignore=v'],'public.ta','root')

select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=S'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

select * from londiste.create_trigger('rq','public.ta',array['tgflags=AS'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=BDL','skip'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=Zx'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['tgflags=AQ'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.ta',array['bogus','xx=yy','when=id>1','pkey=v','deny'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq','public.other',array['SKIP'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq2','public.other',array['SKIP'],'public.ta','leaf')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.create_trigger('rq3','public.other',null,'public.ta','leaf')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.create_trigger('rq3','public.other',null,'public.ta','branch')

select * from londiste.drop_table_triggers('rq','public.ta')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.create_trigger('rq3','public.ta',array['skip_truncate','expect_sync','no_merge','merge_all','no_triggers','virtual_table'],'public.ta','root')

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('ta')

select * from londiste.create_trigger('rq4','public.ta',null,'public.nope','root')

-- differs: trigger_name is filled; own SKIP trigger is replaced
select * from londiste.create_trigger('rq4','public.ta','{}'::text[],null,'root')

select londiste.drop_table_triggers('rq3','public.nope')

create function trf() returns trigger language plpgsql as 'begin return new; end'; create trigger aaa after insert on tb for each row execute function trf(); create trigger zaz before insert on tb for each row execute function trf(); create trigger abc after insert on tb for each statement execute function trf();

select * from londiste.local_add_table('rq','public.tb')

select * from trgs('tb')

create trigger aa2 after delete on tc for each row execute function trf(); create trigger aa3 after insert on tc for each row execute function trf();

select * from londiste.local_add_table('rq','public.tc')

create trigger aa3 before insert on td for each row execute function trf();

select * from londiste.local_add_table('rq','public.td')

create trigger "Zupper" after insert on te for each row execute function trf();

-- differs: a trigger that fires first is reported
select * from londiste.local_add_table('rq','public.te')

select * from londiste.local_remove_table('rq','public.td')

-- differs: a root would refuse or lose every row
select * from londiste.local_add_table('rq','public.td',array['skip'])

-- differs: SKIP means BEFORE, own triggers are replaced
select * from trgs('td')

-- differs: it was refused
select * from londiste.local_remove_table('rq','public.td')

select * from londiste.local_add_table('rq','public.td',array['tgflags=B','skip'])

select * from trgs('td')

select * from londiste.local_add_table('rq','public.tdx',array['tgflags=B','skip'],null,'public.td')

select * from trgs('td')

select * from londiste.local_add_table('rq','public.tdy',null,null,'public.td')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.local_add_table('rq','public.virt',array['virtual_table'])

select * from londiste.local_add_table('rq','public.virt2',array['virtual_table'],null,'public.zz')

select * from londiste.local_add_table('rq','public.nt',array['no_triggers'])

select * from londiste.get_table_list('rq')

select londiste.global_add_table(q,'public.tf') from (values ('p1'),('p2'),('p3')) x(q)

select * from londiste.local_add_table('p1','public.tf')

select * from londiste.get_table_list('p1')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select * from trgs('tf')

select * from londiste.local_add_table('p2','public.tf')

select * from londiste.local_add_table('p2','public.tf',array['no_merge'])

select * from londiste.local_remove_table('p1','public.tf')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select * from londiste.local_add_table('p1','public.tf',array['no_merge'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select * from londiste.local_add_table('p2','public.tf',array['no_merge'])

-- differs: names the first queue
select * from londiste.local_add_table('p3','public.tf',array['merge_all'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select * from trgs('tf')

select * from londiste.get_table_list('p1'), londiste.get_table_list('p2'), londiste.get_table_list('p3')

select * from londiste.local_remove_table('p1','public.tf')

select * from londiste.local_remove_table('p2','public.tf')

select * from londiste.local_remove_table('p3','public.tf')

select * from londiste.local_add_table('p1','public.tf',array['merge_all','skip_truncate'], 'x=y')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select * from trgs('tf')

select * from londiste.local_remove_table('p3','public.tf')

select * from londiste.local_remove_table('p2','public.tf')

select * from londiste.local_add_table('p2','public.tf',array['expect_sync'])

select * from londiste.local_add_table('p3','public.tf')

-- differs: expect_sync leaves the state of other queues alone; SKIP shares one trigger
select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select londiste.local_remove_table(q,'public.tf') from (values ('p1'),('p2'),('p3')) x(q)

select * from londiste.local_add_table('p1','public.tf',array['expect_sync'])

select * from londiste.local_add_table('p2','public.tf',array['merge_all'])

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name='public.tf' order by 1, 2

select londiste.global_add_table('p1','public.tg'), londiste.global_add_table('p2','public.th')

select * from londiste.local_add_table('p1','public.tg',null,null,'public.tg')

select * from londiste.local_add_table('p2','public.th',null,null,'public.tg')

select * from londiste.local_add_table('rq','public.tg')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where table_name in ('public.tg','public.th')

select * from londiste.get_table_list('p2')
