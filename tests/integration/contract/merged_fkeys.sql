create table pk1 (id int primary key, v text); create table fk1 (id int primary key, r int constraint fk1_r references pk1)

select pgq_node.register_location('cq','root1','dbname=r',false), pgq_node.create_node('cq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,c) from (values ('p1','cq'),('p2','cq'),('p3',null),('p4',null)) x(q,c)

create sequence sq1

select * from londiste.local_add_seq('cq','public.sq1')

select queue_name, queue_extra_maint from pgq.queue

select * from pgq.maint_operations()

select londiste.global_add_table(q, t) from (values ('p1'),('p2'),('p3'),('p4')) a(q), (values ('public.pk1'),('public.fk1')) b(t)

select londiste.local_add_table('p1',t,array['merge_all']) from (values ('public.pk1'),('public.fk1')) b(t)

select londiste.drop_table_fkey('public.fk1','fk1_r')

select * from londiste.get_valid_pending_fkeys('p1')

select londiste.local_set_table_state('p1',t,null,'ok') from (values ('public.pk1'),('public.fk1')) b(t)

select * from londiste.get_valid_pending_fkeys('p1')

select londiste.local_set_table_state('p2',t,null,'ok') from (values ('public.pk1'),('public.fk1')) b(t)

select * from londiste.get_valid_pending_fkeys('p1')

select * from londiste.get_valid_pending_fkeys('p2')

select * from londiste.get_valid_pending_fkeys('cq')

select londiste.local_set_table_state('p2','public.pk1','1:2:','ok')

select * from londiste.get_valid_pending_fkeys('p1')

select londiste.local_remove_table(queue_name, table_name) from londiste.table_info where local

select londiste.local_add_table('p4',t,array['merge_all']) from (values ('public.pk1'),('public.fk1')) b(t)

select londiste.local_set_table_state(queue_name,table_name,null,'ok') from londiste.table_info where local

select * from londiste.get_valid_pending_fkeys('p3')

select * from londiste.get_valid_pending_fkeys('p4')

select * from londiste.get_valid_pending_fkeys('cq')

select londiste.local_remove_table(queue_name, table_name) from londiste.table_info where local

select londiste.local_add_table('p3','public.pk1',array['no_merge']), londiste.local_add_table('p4','public.fk1',array['no_merge'])

select londiste.local_set_table_state(queue_name,table_name,null,'ok') from londiste.table_info where local

select * from londiste.get_valid_pending_fkeys('p3')

select * from londiste.get_valid_pending_fkeys('p4')
