create table s1 (id serial primary key, v text); create table s2 (id int primary key, v text); create table nk (id int)

select pgq_node.register_location('rq','root1','dbname=r',false), pgq_node.create_node('rq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,null) from (values ('lq')) x(q)

select * from londiste.local_add_table('rq','public.s1')

select * from londiste.local_add_seq('rq','public.s1_id_seq')

-- differs: another table is another table
select * from londiste.local_add_table('rq','public.s1',null,null,'public.s2')

select * from londiste.local_change_handler('rq','public.s1',array['skip_truncate'],'a=b')

select table_attrs from londiste.get_table_list('rq')

select * from londiste.local_change_handler('rq','public.s1',array['no_triggers'],null)

select * from trgs('s1')

select * from londiste.local_remove_table('rq','public.s1')

select * from londiste.get_seq_list('rq')

select * from londiste.local_add_table('lq','public.nk')

select * from londiste.local_add_table('lq','public.nothing')

select londiste.global_add_table('lq','public.nk'), londiste.global_add_table('lq','public.s1'), londiste.global_update_seq('lq','public.s1_id_seq',5)

select * from londiste.local_add_table('lq','public.nk')

select * from londiste.local_add_table('lq','public.s1')

select * from londiste.local_add_seq('lq','public.s1_id_seq')

select * from londiste.local_add_table('lq','public.s1',array['skip_truncate'])

select * from londiste.local_add_table('lq','public.s1',null,'','public.s1')

select * from londiste.local_set_table_state('lq','public.s1',null,'in-copy')

select * from londiste.local_set_table_struct('lq','public.s1','create index foo on public.s1(v)')

select * from londiste.local_remove_table('lq','public.s1')

select indexname from pg_indexes where tablename='s1' order by 1

select * from londiste.get_seq_list('lq')

select * from londiste.local_set_table_state('lq','public.s1',null,null)

select * from londiste.global_add_table('rq','public.s2')

select * from londiste.local_remove_table('rq','public.s2')

select * from public.evs('rq')

select * from pgq_node.drop_node('rq','root1')
