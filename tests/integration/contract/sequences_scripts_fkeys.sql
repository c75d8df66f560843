create table pk1 (id int primary key, v text); create table fk1 (id int primary key, r int constraint fk1_r references pk1); create table fk2 (id int primary key, r int constraint fk2_r references fk1 on delete cascade deferrable initially deferred, s int constraint "Fk2 S" references fk2); create sequence sq1; create sequence sq2; create schema "S x"; create sequence "S x"."Sq 3"; create table "S x"."T 1" (id serial primary key); create table outside (id int primary key, o int constraint out_o references pk1); create table fk5 (id int primary key, r int constraint fk5_r references outside)

select pgq_node.register_location('rq','root1','dbname=r',false), pgq_node.create_node('rq','root','root1','rw',null,null,null)

select pgq_node.register_location(q,'s','dbname=r',false), pgq_node.register_location(q,'d','dbname=l',false), pgq_node.create_node(q,'leaf','d',q||'w','s',1,null) from (values ('lq')) x(q)

select * from londiste.local_add_seq('rq','sq1')

select * from londiste.seq_info

select * from public.evs('rq')

select * from londiste.local_add_seq('rq','public.sq1')

select * from londiste.local_add_seq('rq','public.nope')

select * from londiste.local_add_seq('rq','public.pk1')

select * from londiste.local_add_seq('nope','public.sq1')

select setval('sq2', 4366741)

select * from londiste.local_add_seq('rq','public.sq2')

select * from londiste.local_add_seq('rq','S x.Sq 3')

select * from londiste.get_seq_list('rq')

select * from londiste.get_seq_list('nope')

select * from public.evs('rq')

select * from londiste.root_check_seqs('rq')

select setval('sq1', 20000)

select * from londiste.root_check_seqs('rq')

select setval('sq1', 20001)

select * from londiste.root_check_seqs('rq')

select * from londiste.get_seq_list('rq')

select setval('sq1', 20002)

select * from londiste.root_check_seqs('rq', 100)

select setval('sq1', 50000)

select * from londiste.root_check_seqs('rq', 100)

select * from londiste.get_seq_list('rq')

select setval('sq1', 49990)

select * from londiste.root_check_seqs('rq', 100)

select * from londiste.root_check_seqs('rq', 1000)

select * from londiste.root_check_seqs('rq', 60000)

select * from londiste.get_seq_list('rq')

select * from londiste.root_check_seqs('lq')

select * from londiste.root_check_seqs('nope')

select * from londiste.root_check_seqs('nope', 3)

select setval('sq1', 1000000)

select londiste.periodic_maintenance()

select * from londiste.get_seq_list('rq')

select * from public.evs('rq')

select * from londiste.global_update_seq('rq','public.sq1',7)

select * from londiste.global_update_seq('lq','public.sq1',70000)

select * from londiste.global_update_seq('lq','nope.sq1',70001)

select * from londiste.global_update_seq('nope','public.sq1',70000)

select * from londiste.get_seq_list('lq')

select * from londiste.local_add_seq('lq','public.unk')

select * from londiste.local_add_seq('lq','nope.sq1')

select * from londiste.local_add_seq('lq','sq1')

select * from londiste.get_seq_list('lq')

select last_value from sq1

select * from londiste.global_update_seq('lq','public.sq1',7000000)

select last_value from sq1

select * from londiste.global_update_seq('lq','public.sq1',6)

select last_value from sq1

select * from londiste.get_seq_list('lq')

select * from londiste.local_remove_seq('lq','public.sq1')

select * from londiste.local_remove_seq('lq','public.sq1')

select * from londiste.local_remove_seq('lq','public.sq77')

select * from londiste.get_seq_list('lq')

select * from londiste.global_remove_seq('lq','public.sq1')

select * from londiste.global_remove_seq('lq','public.sq1')

select * from londiste.local_remove_seq('rq','public.sq1')

select * from londiste.global_remove_seq('rq','public.sq2')

select * from londiste.global_remove_seq('nope','public.sq2')

select * from londiste.local_remove_seq('nope','public.sq2')

select * from londiste.get_seq_list('rq')

select * from public.evs('rq')

select * from londiste.execute_start('rq','1.sql','create table x1 (a int)',true)

select queue_name, execute_file, execute_sql from londiste.applied_execute

select * from londiste.execute_finish('rq','1.sql')

select * from londiste.execute_finish('rq','1.sql')

select * from londiste.execute_finish('rq','9.sql')

select * from londiste.execute_finish('nope','9.sql')

select * from londiste.execute_start('rq','1.sql','create table x1 (a int)',true)

-- differs: the same name with other content is not skipped silently
select * from londiste.execute_start('rq','1.sql','create table x2 (a int)',true)

select * from londiste.execute_start('nope','1.sql','create table x2 (a int)',true)

-- differs: the same name with other content is not skipped silently
select * from londiste.execute_start('lq','1.sql','create table x2 (a int)',false)

select * from londiste.execute_start('lq','2.sql','create table x2 (a int)',true)

select * from londiste.execute_start('lq','2.sql','create table x2 (a int)',false, 'local-table=x')

select * from londiste.execute_finish('lq','2.sql')

select * from londiste.execute_start('rq','3.sql','create table x3 (a int)',true,'local-table=public.x')

select * from londiste.execute_finish('rq','3.sql')

select * from londiste.execute_start('rq','4.sql','create table x4 (a int)',false)

-- differs: the same name with other content is not skipped silently
select queue_name, execute_file, execute_sql, execute_attrs from londiste.applied_execute order by 2

select * from public.evs('rq')

update londiste.applied_execute set execute_time = now() - interval '4 months' where execute_file='1.sql'

select londiste.periodic_maintenance()

select queue_name, execute_file, execute_sql, execute_attrs from londiste.applied_execute order by 2

select * from londiste.find_table_fkeys('public.pk1') order by 1,3

select * from londiste.find_table_fkeys('fk2') order by 1,3

select * from londiste.find_table_fkeys('public.nope')

select * from londiste.drop_table_fkey('public.fk1','fk1_r')

select * from londiste.drop_table_fkey('public.fk1','fk1_r')

select * from londiste.drop_table_fkey('public.fk1','nope')

select * from londiste.drop_table_fkey('public.fk2','fk2_r')

select * from londiste.drop_table_fkey('public.fk2','Fk2 S')

select * from londiste.drop_table_fkey('public.fk5','fk5_r')

select * from londiste.pending_fkeys order by 1,3

select * from londiste.get_table_pending_fkeys('public.fk1') order by 1,3

select * from londiste.get_table_pending_fkeys('fk1')

select * from londiste.get_valid_pending_fkeys('lq')

select londiste.global_add_table('lq','public.'||t) from (values ('pk1'),('fk1'),('fk2'),('fk5')) x(t)

select londiste.local_add_table('lq','public.'||t) from (values ('pk1'),('fk1'),('fk2'),('fk5')) x(t)

select * from londiste.get_valid_pending_fkeys('lq')

select londiste.local_set_table_state('lq','public.pk1',null,'ok'), londiste.local_set_table_state('lq','public.fk1','1:2:','ok'), londiste.local_set_table_state('lq','public.fk2',null,'ok')

select * from londiste.get_valid_pending_fkeys('lq') order by 1,3

select londiste.local_set_table_state('lq','public.fk1',null,'ok'), londiste.local_set_table_state('lq','public.fk5',null,'ok')

-- differs: keys to tables that are not replicated come back
select * from londiste.get_valid_pending_fkeys('lq') order by 1,3

select * from londiste.get_valid_pending_fkeys('rq') order by 1,3

select * from londiste.restore_table_fkey('public.fk1','fk1_r')

select * from londiste.restore_table_fkey('public.fk1','fk1_r')

select * from londiste.restore_table_fkey('public.fk1','nope', true)

select * from londiste.restore_table_fkey('public.fk2','fk2_r', true)

select conname, convalidated, pg_get_constraintdef(oid) from pg_constraint where contype='f' order by 1

select * from londiste.pending_fkeys order by 1,3

select * from londiste.restore_table_fkey('public.fk2','fk2_r', true)

ALTER TABLE ONLY public.fk2 ADD CONSTRAINT fk2_r FOREIGN KEY (r) REFERENCES public.fk1(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED NOT VALID

select * from londiste.restore_table_fkey('public.fk2','fk2_r', true)

alter table public.fk2 validate constraint fk2_r

select * from londiste.restore_table_fkey('public.fk2','fk2_r', true)

select * from londiste.restore_table_fkey('public.fk2','fk2_r', true)

select * from londiste.restore_table_fkey('public.fk2','fk2_r')

select * from londiste.restore_table_fkey('public.fk2','Fk2 S')

select conname, convalidated, pg_get_constraintdef(oid) from pg_constraint where contype='f' order by 1

select * from londiste.pending_fkeys order by 1,3

select londiste.make_fqname('a'), londiste.make_fqname('a.b'), londiste.make_fqname('a.b.c'), londiste.make_fqname(null), londiste.make_fqname('')

select londiste.quote_fqname('a'), londiste.quote_fqname('a.b'), londiste.quote_fqname('A.b.c'), londiste.quote_fqname('select'), londiste.quote_fqname('S x.T 1'), londiste.quote_fqname('pg_catalog')

select * from londiste.split_fqname('a')

select * from londiste.split_fqname('a.b')

select * from londiste.split_fqname('a.b.c')

select londiste.find_column_types('public.pk1'), londiste.find_column_types('S x.T 1'), londiste.find_column_types('fk2')

select londiste.find_column_types('public.nope')

select londiste.find_rel_oid('public.pk1','r')='pk1'::regclass, londiste.find_rel_oid('public.pk1','S'), londiste.find_rel_oid('sq2','S')='sq2'::regclass, londiste.find_table_oid('pk1')='pk1'::regclass, londiste.find_seq_oid('pk1'), londiste.find_table_oid('nope.x')

select londiste.is_replica_func('pgq.logutriga'::regproc), londiste.is_replica_func('pgq.sqltriga'::regproc), londiste.is_replica_func('pgq.jsontriga'::regproc), londiste.is_replica_func('pgq.version'::regproc)

select londiste.version(), londiste.upgrade_schema()

select londiste.root_notify_change('rq','a','b'), londiste.root_notify_change('lq','a','b')

select londiste.root_notify_change('nope','a','b')

select * from public.evs('rq')

select londiste.set_session_replication_role('replica', false)

show session_replication_role

select londiste.set_session_replication_role('origin', false)

show session_replication_role

select londiste.set_session_replication_role('bad', false)

select londiste.set_session_replication_role('local', true)

show session_replication_role

select londiste.set_session_replication_role(null, false)

-- differs: registered sequences are not missing
select * from londiste.local_show_missing('rq')

select * from londiste.local_show_missing('lq')
