select pgq_node.register_location('rq','root1','dbname=r',false), pgq_node.create_node('rq','root','root1','rw',null,null,null)

select pgq_node.register_location('lq','root1','dbname=r',false), pgq_node.register_location('lq','leaf1','dbname=l',false), pgq_node.create_node('lq','leaf','leaf1','lw','root1',1,null)

select pgq_node.register_location('bq','root1','dbname=r',false), pgq_node.register_location('bq','br1','dbname=l',false), pgq_node.create_node('bq','branch','br1','bw','root1',1,null)

create table t1 (id int4 primary key, d text); create table t2 (id int4, d text); create table "T.x" (id int primary key); create table t3 (a int, b int, c text, primary key (b,a)); create schema s2; create table s2.tt (id int primary key, x text); create sequence sq1; create sequence s2.sq2; create view v1 as select * from t1; create table t4 (id serial primary key, x text)

select * from londiste.local_add_table('nope','public.t1')

select * from londiste.local_add_table('rq','t1')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info

select * from trgs('t1')

select * from public.evs('rq')

select * from londiste.local_add_table('rq','public.t1')

select * from londiste.local_add_table('rq','public.t2')

select * from londiste.local_add_table('rq','public.nope')

select * from londiste.local_add_table('rq','public.v1')

select * from londiste.local_add_table('rq','public.T.x')

select * from londiste.local_add_table('rq','public.t3', array['ignore=c'])

select * from trgs('t3')

select * from londiste.local_add_table('rq','public.t3', array['ignore=c','backup'])

select * from londiste.local_add_table('rq','public.t3', array['ignore=c'])

select * from londiste.local_add_table('rq','s2.tt', array['tgflags=BIUDQ','SKIP'])

select * from trgs('s2.tt')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.get_table_list('rq')

select * from public.evs('rq')

select * from londiste.local_remove_table('rq','s2.tt')

select * from trgs('s2.tt')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.local_remove_table('rq','s2.tt')

select * from londiste.local_remove_table('nope','s2.tt')

select * from londiste.global_remove_table('rq','s2.tt')

select * from londiste.global_remove_table('rq','public.t3')

select * from londiste.global_remove_table('nope','public.t3')

select * from trgs('t3')

select * from londiste.global_add_table('rq','public.t3')

select * from londiste.global_add_table('nope','public.t3')

select * from londiste.global_add_table('rq','public.t3')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.local_add_table('rq','public.t3')

select * from public.evs('rq')

select * from londiste.local_add_table('lq','public.t1')

select * from londiste.global_add_table('lq','public.t1')

select * from londiste.global_add_table('lq','public.t3')

select * from londiste.global_add_table('lq','public.notlocal')

select * from londiste.global_add_table('lq','s2.tt')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from londiste.get_table_list('lq')

select * from londiste.local_add_table('lq','public.notlocal')

select * from londiste.local_add_table('lq','public.t1')

select * from londiste.local_add_table('lq','t1')

select * from trgs('t1')

select * from londiste.local_add_table('lq','public.t3', array['expect_sync'])

select * from londiste.local_add_table('lq','s2.tt', array['skip_truncate','no_triggers'], 'handler=x&a=b', 's2.tt')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info order by 1, 2

select * from trgs('s2.tt')

select * from londiste.get_table_list('lq')

select * from londiste.local_set_table_state('lq','public.t1',null,'in-copy')

select * from londiste.local_set_table_state('lq','public.t1','1:2:','catching-up')

select * from londiste.local_set_table_state('lq','public.t1','1:2:','bad-state')

select * from londiste.local_set_table_state('lq','t1',null,'wanna-sync:5')

select * from londiste.local_set_table_state('lq','public.nope',null,'in-copy')

select * from londiste.local_set_table_state('lq','public.notlocal',null,'in-copy')

select * from londiste.local_set_table_state('nope','public.t1',null,'in-copy')

select * from londiste.get_table_list('lq')

select * from londiste.local_set_table_struct('lq','public.t1','create index foo')

select * from londiste.local_set_table_state('lq','public.t1',null,'in-copy')

select * from londiste.local_set_table_struct('lq','public.t1','create index foo')

select * from londiste.local_set_table_struct('lq','public.nope','create index foo')

select * from londiste.get_table_list('lq')

select * from londiste.local_set_table_state('lq','public.t1',null,'ok')

select * from londiste.local_set_table_struct('lq','public.t1',null)

select * from londiste.local_set_table_state('lq','public.t1',null,'ok')

select * from londiste.local_set_table_attrs('lq','public.t1','a=b')

select * from londiste.local_set_table_attrs('lq','public.nope','a=b')

select * from londiste.local_set_table_attrs('lq','public.notlocal','a=b')

select * from londiste.local_set_table_attrs('nope','public.t1','a=b')

select * from londiste.local_change_handler('lq','public.t1',array['no_triggers'],'handler=zz')

select * from trgs('t1')

select * from londiste.local_change_handler('lq','public.t1',null,null)

select * from trgs('t1')

select * from londiste.local_change_handler('lq','public.notlocal',null,null)

select * from londiste.local_change_handler('lq','public.nope',null,null)

select * from londiste.local_change_handler('nope','public.t1',null,null)

select * from londiste.local_change_handler('rq','public.t1',array['backup'],'handler=k')

select * from trgs('t1')

select * from londiste.get_table_list('rq')

select * from londiste.local_remove_table('lq','public.t1')

select * from londiste.local_remove_table('lq','public.notlocal')

select * from londiste.local_remove_table('lq','public.nope')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where queue_name='lq' order by 1, 2

select * from londiste.global_remove_table('lq','public.t1')

select * from londiste.global_remove_table('lq','public.nope')

select queue_name, table_name, local, merge_state, custom_snapshot, dropped_ddl, table_attrs, dest_table from londiste.table_info where queue_name='lq' order by 1, 2

select * from londiste.global_add_table('lq','public.src')

select * from londiste.local_add_table('lq','public.src',null,'a=1','s2.dst')

create table s2.dst (id int primary key, v text)

select * from londiste.local_add_table('lq','public.src',null,'a=1','s2.dst')

select * from trgs('s2.dst')

select * from londiste.local_add_table('lq','public.src',null,'a=1','s2.dst')

select * from londiste.local_add_table('lq','public.src',null,'a=2','s2.dst')

select * from londiste.local_add_table('lq','public.src',null,'a=1','s2.dst2')

select * from londiste.local_add_table('lq','public.src')

select * from londiste.get_table_list('lq')

select * from londiste.local_add_table('rq','public.rsrc',null,'a=1','s2.dst')

select * from trgs('s2.dst')

select * from londiste.local_add_table('rq','public.rsrc2',array['ev_extra1=''bla'''],null,'t4')

select * from trgs('t4')

select * from londiste.get_table_list('rq')

select * from londiste.local_remove_table('lq','public.src')

select * from trgs('s2.dst')

select londiste.global_add_table('bq','public.t1'), londiste.global_add_table('bq','s2.tt'), londiste.global_add_table('bq','public.bsrc')

select * from londiste.local_add_table('bq','public.t1')

select * from trgs('t1')

select * from londiste.local_add_table('bq','s2.tt',array['expect_sync','backup'])

select * from trgs('s2.tt')

select * from londiste.local_add_table('bq','public.bsrc',null,null,'public.t4')

select * from trgs('public.t4')

select * from londiste.get_table_list('bq')

select * from londiste.local_show_missing('rq')

select * from londiste.local_show_missing('lq')

select * from londiste.local_show_missing('bq')

select * from londiste.local_show_missing('nope')

select * from public.evs('rq')
