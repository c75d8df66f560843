select pgq_node.register_location(q,'n'||i,'dbname=n'||i,false) from generate_series(1,4) i, (values ('b'),('l'),('r')) x(q)

select * from pgq_node.create_node('b','branch','n2','b_worker','n1',100,null)

select * from pgq_node.create_node('l','leaf','n2','l_worker','n1',100,null)

select * from pgq_node.create_node('r','root','n2','r_worker',null,null,null)

select pgq.ticker('b',101,'2020-01-01',1), pgq.ticker('b',110,'2020-01-01',1), pgq.ticker('b',111,'2020-01-01',1), pgq.ticker('b',115,'2020-01-01',1)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('b')

select pgq_node.set_consumer_completed('b','b_worker',110)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('b')

select pgq_node.set_global_watermark('b',115)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('b')

select * from pgq_node.register_consumer('b','bextra','n1',105)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('b')

select pgq.register_consumer_at('b','plain',101)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('b')

select local_watermark, global_watermark, local_queue_top, completed_tick from pgq_node.get_worker_state('b')

select * from pgq_node.register_consumer('l','lextra','n1',50)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('l')

select * from pgq_node.set_consumer_completed('l','lextra',150)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('l')

select * from pgq_node.get_worker_state('l')

select pgq.set_queue_config('r','ticker_max_lag','0'), pgq.set_queue_config('r','ticker_idle_period','0'), pgq.set_queue_config('r','ticker_max_count','1')

select pgq.insert_event('r','a','b')

select pgq.ticker('r')

select pgq.insert_event('r','a','b')

select pgq.ticker('r')

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('r')

select * from pgq_node.set_global_watermark('r',null)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('r')

select pgq.register_consumer_at('r','plain',2)

select * from pgq_node.set_global_watermark('r',null)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('r')

select * from pgq_node.register_consumer('r','rextra','n2',1)

select * from pgq_node.set_global_watermark('r',null)

select local_watermark, global_watermark, worker_last_tick from pgq_node.get_node_info('r')

select * from pgq_node.register_subscriber('r','n3','n3_worker',null)

select * from pgq_node.register_subscriber('r','n4','n4_worker',3)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from pgq_node.get_subscriber_info('r')

select * from pgq_node.set_subscriber_watermark('r','n4',2)

select * from pgq_node.unregister_consumer('r','r_worker')

select * from pgq_node.get_node_info('r')

select * from pgq_node.get_worker_state('r')

select * from pgq_node.set_global_watermark('r',null)

select pgq_node.unregister_subscriber('r','n3'), pgq_node.unregister_subscriber('r','n4'), pgq.unregister_consumer('r','plain')

select * from pgq_node.set_global_watermark('r',null)

select * from pgq_node.drop_node('l','n1')

select * from pgq_node.drop_node('b','n1')

select * from pgq_node.drop_node('b','n4')

select * from pgq_node.unregister_location('l','n2')

select * from pgq_node.drop_node('l','n2')

select * from pgq_node.node_location where queue_name='l'

select * from pgq_node.set_node_attrs('b','x=y')

select node_attrs from pgq_node.get_node_info('b')

select pgq_node.register_location('w','n2','dbname=n2',false)

select * from pgq_node.create_node('w','root','n2','w_worker',null,null,null)

select pgq.force_tick('w'), pgq.ticker('w')

select * from pgq_node.set_global_watermark('w', (select max(t.tick_id) from pgq.tick t join pgq.queue q on q.queue_id = t.tick_queue where q.queue_name = 'w'))

select s.consumer_name, s.last_tick_id = (select max(t.tick_id) from pgq.tick t join pgq.queue q on q.queue_id = t.tick_queue where q.queue_name = 'w') as follows from pgq_node.local_state s where s.queue_name = 'w'
