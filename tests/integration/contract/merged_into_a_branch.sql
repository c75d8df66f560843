create table pk1 (id int primary key, v text); create table fk1 (id int primary key, r int constraint fk1_r references pk1)

select pgq_node.register_location('bq',n,'dbname='||n,false) from (values ('r'),('b')) x(n)

select * from pgq_node.create_node('bq','branch','b','bw','r',1,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,'bq') from (values ('p1'),('p2')) x(q)

select londiste.global_add_table(q, t) from (values ('bq'),('p1'),('p2')) a(q), (values ('public.pk1'),('public.fk1')) b(t)

select londiste.local_add_table('bq',t,array['expect_sync']) from (values ('public.pk1'),('public.fk1')) b(t)

update londiste.table_info set local = true, merge_state = 'ok'

select londiste.drop_table_fkey('public.fk1','fk1_r')

select * from londiste.get_valid_pending_fkeys('p1')

select * from londiste.get_valid_pending_fkeys('p2')

select * from londiste.get_valid_pending_fkeys('bq')

update londiste.table_info set merge_state = 'in-copy' where queue_name = 'p2' and table_name = 'public.pk1'

select * from londiste.get_valid_pending_fkeys('bq')

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,null) from (values ('v1'),('v2')) x(q)

select londiste.global_add_table(q, 'public.virt') from (values ('v1'),('v2')) a(q)

select * from londiste.local_add_table('v1','public.virt',array['merge_all','virtual_table'],'handler=vtable')

select queue_name, local, merge_state, table_attrs from londiste.table_info where table_name = 'public.virt' order by 1
