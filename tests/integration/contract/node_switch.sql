select pgq_node.register_location('dq','n'||i,'dbname=n'||i,false) from generate_series(1,4) i

select * from pgq_node.create_node('dq','root','n1','n1_worker',null,null,null)

select * from pgq_node.register_subscriber('dq','n2','n2_worker',null)

select * from pgq_node.register_subscriber('dq','n3','n3_worker',1)

select * from pgq_node.drop_node('dq','n3')

select * from pgq_node.register_subscriber('dq','n4','n4_worker',null)

select * from pgq_node.subscriber_info

select * from pgq_node.node_location

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from public.evs('dq')

select pgq_node.register_location('dq','n2','dbname=n2',false)

select * from pgq_node.unregister_subscriber('dq','n4')

select * from pgq_node.unregister_subscriber('dq','n4')

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select co_name from pgq.consumer order by 1

select pgq.set_queue_config('dq','ticker_max_lag','0'), pgq.set_queue_config('dq','ticker_idle_period','0'), pgq.set_queue_config('dq','ticker_max_count','1')

select pgq.insert_event('dq','a','b')

select pgq.ticker('dq')

select * from pgq_node.set_global_watermark('dq',null)

select * from pgq_node.promote_branch('dq')

select * from pgq_node.demote_root('dq',2,'n2')

select * from pgq_node.demote_root('dq',3,'n2')

select * from pgq_node.demote_root('dq',0,'n2')

select * from pgq_node.demote_root('dq',null,'n2')

select * from pgq_node.demote_root('dq',1,'node77')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.demote_root('dq',1,'n2')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select pgq.insert_event('dq','a','b')

select pgq.ticker('dq')

select pgq.ticker()

select * from pgq_node.demote_root('dq',1,'n2')

select * from pgq_node.demote_root('dq',3,'n2')

select * from pgq_node.get_node_info('dq')

select * from pgq_node.demote_root('dq',2,'n2')

select * from pgq_node.demote_root('dq',2,'n2')

select * from pgq_node.demote_root('dq',4,'n2')

select * from pgq_node.local_state

select tick_id from pgq.tick order by 1

select * from pgq_node.demote_root('dq',3,'node77')

select * from pgq_node.get_node_info('dq')

select * from pgq_node.demote_root('dq',3,'n2')

select * from pgq_node.demote_root('dq',3,'n2')

select * from pgq_node.get_node_info('dq')

select * from pgq_node.node_info

select * from pgq_node.local_state order by 2

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.set_global_watermark('dq',3)

select * from pgq_node.set_global_watermark('dq',2)

select * from pgq_node.set_global_watermark('dq',null)

select * from pgq_node.set_global_watermark('dq',777)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select pgq_node.maint_watermark('dq')

select * from pgq_node.set_consumer_paused('dq','n1_worker',true)

select * from pgq_node.set_consumer_uptodate('dq','n1_worker',true)

select * from pgq_node.promote_branch('dq')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.get_worker_state('dq')

select * from pgq_node.local_state order by 2

select * from public.evs('dq')

select pgq.insert_event('dq','a','b')

select pgq.ticker('dq')

select * from pgq_node.get_worker_state('dq')

select * from pgq_node.demote_root('dq',1,'n2')

select * from pgq_node.demote_root('dq',2,'n2')

select * from pgq_node.demote_root('dq',3,'n2')

select * from pgq_node.promote_branch('dq')

select * from pgq_node.promote_branch('dq')

select * from pgq_node.register_consumer('dq','extra','n1',2)

select pgq.register_consumer('dq','plain')

select * from pgq_node.set_consumer_error('dq','extra','e1')

select * from pgq_node.set_consumer_uptodate('dq','extra',true)

select * from pgq_node.register_consumer('dq','extra','n2',3)

select * from pgq_node.local_state order by 2

select * from pgq_node.change_consumer_provider('dq','extra','n1')

select * from pgq_node.local_state order by 2

select * from pgq_node.change_consumer_provider('nope','extra','n1')

update pgq.tick set tick_time = now() - interval '10 minutes'

select pgq.insert_event('dq','x','y')

select pgq.ticker('dq')

select queue_name, consumer_name, last_tick, lag > '5 min' from pgq.get_consumer_info() order by 1,2

select pgq_node.maint_watermark('dq')

select pgq_node.maint_watermark('dq')

select * from public.evs('dq')

select queue_name, consumer_name, last_tick, lag > '5 min' from pgq.get_consumer_info() order by 1,2

select pgq.unregister_consumer('dq','plain')

select pgq_node.maint_watermark('dq')

select queue_name, consumer_name, last_tick, lag > '5 min' from pgq.get_consumer_info() order by 1,2

select * from pgq_node.set_consumer_completed('dq','extra',null)

select * from pgq_node.set_consumer_paused('dq','extra',null)

select * from pgq_node.drop_node('dq','n4')

select pgq.register_consumer('dq','plain')

select * from pgq_node.drop_node('dq','n1')

select queue_name from pgq.queue

select co_name from pgq.consumer

select pgq_node.register_location(q,'c1','dbname=c1',false), pgq_node.register_location(q,'c2','dbname=c2',false), pgq_node.register_location(q,'c3','dbname=c3',false) from (values ('cq'),('p1'),('p2')) x(q)

select * from pgq_node.create_node('cq','branch','c2','cq_worker','c1',50,null)

select * from pgq_node.create_node('p1','leaf','c2','p1_worker','c3',60,'cq')

select * from pgq_node.create_node('p2','leaf','c2','p2_worker','c3',70,null)

select * from pgq_node.get_node_info(q), (values ('cq'),('p1'),('p2')) x(q) where ret_code>0

select * from pgq_node.get_worker_state('p1')

select * from pgq_node.set_partition_watermark('cq','p1',61)

select * from pgq_node.set_partition_watermark('cq','p2',71)

select * from pgq_node.local_state order by 1,2

select * from pgq_node.set_consumer_completed('cq','cq_worker',55)

select * from pgq_node.get_node_info('cq')

select * from pgq_node.get_worker_state('cq')

select * from pgq_node.drop_node('cq','c2')

select * from pgq_node.get_node_info('p1')

select pgq_node.register_location('cr','c2','dbname=c2',false)

select * from pgq_node.create_node('cr','root','c2','cr_worker',null,null,null)

select pgq_node.register_location('p5','c2','dbname=c2',false), pgq_node.register_location('p5','c3','dbname=c3',false)

select * from pgq_node.create_node('p5','branch','c2','p5_worker','c3',80,null)

select * from pgq_node.create_node('p5','leaf','c2','p5_worker','c3',80,'cr')

select * from pgq_node.set_partition_watermark('cr','p5',81)

select * from pgq_node.set_partition_watermark('cr','p5',80)

select pgq.ticker('p5',81,'2020-01-01',1)

select * from pgq_node.set_partition_watermark('cr','p5',81)

select * from pgq_node.set_partition_watermark('cr','p5',81)

select * from pgq_node.set_partition_watermark('cr','p5',80)

select * from pgq_node.set_partition_watermark('p5','cr',1)

select * from pgq_node.set_partition_watermark('cr','p5',null)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

update pgq_node.node_info set node_type='leaf', combined_queue='cr' where queue_name='p5'

select * from pgq_node.set_partition_watermark('cr','p5',81)

select * from pgq_node.local_state order by 1,2

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

update pgq_node.node_info set node_type='branch', combined_queue=null where queue_name='p5'

update pgq_node.node_info set combined_queue='nope' where queue_name='p2'

select * from pgq_node.set_partition_watermark('nope','p2',81)

update pgq_node.node_info set combined_queue='p1' where queue_name='p2'

select * from pgq_node.set_partition_watermark('p1','p2',81)

update pgq_node.node_info set combined_queue='p5' where queue_name='p2'

select * from pgq_node.set_partition_watermark('p5','p2',81)

select * from pgq_node.set_partition_watermark('p5','p2',61)

select * from pgq_node.set_partition_watermark('p5','p2',null)

select * from pgq_node.local_state order by 1,2
