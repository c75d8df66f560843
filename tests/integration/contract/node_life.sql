select * from pgq_node.register_location('aq','node1','dbname=node1',false)

select * from pgq_node.register_location('aq','node2','dbname=node2',false)

select * from pgq_node.register_location('aq','node3','dbname=node3',null)

select * from pgq_node.register_location('aq','node2','dbname=node2x',true)

select * from pgq_node.register_location('aq','node2',null,false)

select * from pgq_node.register_location('aq','nodeX',null,false)

select * from pgq_node.node_location order by 1,2

select * from pgq_node.get_node_info('aq')

select * from pgq_node.get_worker_state('aq')

select * from pgq_node.get_consumer_state('aq','c')

select * from pgq_node.create_node('aq','bad','node1','node1_worker',null,null,null)

select * from pgq_node.create_node('aq','root','nodeNo','node1_worker',null,null,null)

select * from pgq_node.create_node('aq','root','node1',null,null,null,null)

select * from pgq_node.create_node('aq','root','node1','node1_worker','node2',null,null)

select * from pgq_node.create_node('aq','root','node1','node1_worker',null,5,null)

select * from pgq_node.create_node('aq','root','node1','node1_worker',null,null,'cq')

select * from pgq_node.create_node('aq','root','node1','node1_worker',null,null,null)

select * from pgq_node.create_node('aq','root','node1','node1_worker',null,null,null)

select * from pgq_node.node_info

select * from pgq_node.local_state

select * from pgq_node.subscriber_info

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from pgq_node.get_node_info('aq')

select * from pgq_node.get_worker_state('aq')

select * from pgq_node.get_consumer_info('aq')

select * from pgq_node.get_subscriber_info('aq')

select * from pgq_node.get_queue_locations('aq')

select pgq_node.is_root_node('aq'), pgq_node.is_leaf_node('aq')

select pgq_node.is_root_node('nope')

select pgq_node.is_leaf_node('nope')

select * from pgq_node.get_consumer_info('nope')

select * from pgq_node.get_subscriber_info('nope')

select * from pgq_node.get_queue_locations('nope')

select * from pgq_node.register_location('aq','node4','dbname=node4',false)

select * from pgq_node.register_location('aq','node4','dbname=node4',true)

select * from pgq_node.register_location('aq','node4','dbname=node4',false)

select * from public.evs('aq')

select * from pgq_node.register_subscriber('nope','node2','node2_worker',null)

select * from pgq_node.register_subscriber('aq','node2','node2_worker',null)

select * from pgq_node.register_subscriber('aq','node2','node2_worker',null)

select * from pgq_node.register_subscriber('aq','node99','node99_worker',null)

select * from pgq_node.register_subscriber('aq','node3','node3_worker',99)

select * from pgq_node.register_subscriber('aq','node3','node3_worker',1)

select * from pgq_node.subscriber_info order by 2

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from pgq_node.get_subscriber_info('aq')

select pgq.set_queue_config('aq','ticker_max_lag','0'), pgq.set_queue_config('aq','ticker_idle_period','0'), pgq.set_queue_config('aq','ticker_max_count','1')

select pgq.ticker()

select pgq.insert_event('aq','a','b')

select pgq.ticker()

select pgq.insert_event('aq','a','b')

select pgq.ticker()

select count(*)>2 from pgq.tick

select * from pgq_node.set_subscriber_watermark('aq','node2',1)

select * from pgq_node.set_subscriber_watermark('aq','node2',2)

select * from pgq_node.set_subscriber_watermark('aq','node2',1)

select * from pgq_node.set_subscriber_watermark('aq','node2',99)

-- differs: message names the queue
select * from pgq_node.set_subscriber_watermark('aq','nodeX',1)

-- differs: message names the queue
select * from pgq_node.set_subscriber_watermark('nope','node2',1)

-- differs: no watermark is no move, and says so
select * from pgq_node.set_subscriber_watermark('aq','node2',null)

select * from pgq_node.get_subscriber_info('aq')

select * from pgq_node.set_global_watermark('aq',2)

select * from pgq_node.set_global_watermark('aq',null)

select * from pgq_node.set_global_watermark('aq',1)

select * from pgq_node.set_global_watermark('aq',98)

-- differs: message names the queue
select * from pgq_node.set_global_watermark('nope',98)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from public.evs('aq')

select * from pgq_node.get_node_info('aq')

select * from pgq_node.set_consumer_completed('aq','node1_worker',3)

select * from pgq_node.set_consumer_completed('aq','nobody',3)

select * from pgq_node.set_consumer_completed('nope','node1_worker',3)

select * from pgq_node.set_consumer_error('aq','node1_worker','broken')

select * from pgq_node.set_consumer_error('aq','nobody','broken')

select * from pgq_node.get_consumer_state('aq','node1_worker')

select * from pgq_node.get_consumer_state('aq','nobody')

select * from pgq_node.get_worker_state('aq')

select * from pgq_node.set_consumer_completed('aq','node1_worker',2)

select * from pgq_node.local_state

select * from pgq_node.set_consumer_paused('aq','node1_worker',true)

select * from pgq_node.set_consumer_paused('aq','node1_worker',true)

select * from pgq_node.set_consumer_paused('aq','nobody',true)

select * from pgq_node.set_consumer_uptodate('aq','node1_worker',true)

select * from pgq_node.set_consumer_uptodate('aq','node1_worker',true)

select * from pgq_node.set_consumer_uptodate('aq','node1_worker',false)

select * from pgq_node.set_consumer_uptodate('aq','nobody',true)

select * from pgq_node.set_consumer_paused('aq','node1_worker',false)

select * from pgq_node.local_state

select * from pgq_node.set_node_attrs('aq','a=b&c')

select * from pgq_node.set_node_attrs('nope','a=b&c')

select * from pgq_node.register_consumer('aq','myc','node1',2)

select * from pgq_node.register_consumer('aq','myc','node1',3)

select * from pgq_node.register_consumer('aq','myc2','node77',3)

select * from pgq_node.register_consumer('nope','myc2','node1',3)

select * from pgq_node.register_consumer('aq','myc3','node1',null)

select * from pgq_node.local_state order by 2

select * from pgq_node.get_consumer_info('aq')

select * from pgq_node.change_consumer_provider('aq','myc','node2')

select * from pgq_node.change_consumer_provider('aq','myc','node77')

select * from pgq_node.change_consumer_provider('aq','nobody','node2')

select * from pgq_node.local_state order by 2

select * from pgq_node.get_consumer_state('aq','myc')

select * from pgq_node.unregister_consumer('aq','myc')

select * from pgq_node.unregister_consumer('aq','myc')

select * from pgq_node.unregister_consumer('aq','node1_worker')

select * from pgq_node.unregister_location('aq','node1')

select * from pgq_node.unregister_location('aq','node2')

select * from pgq_node.unregister_location('aq','node4')

select * from pgq_node.unregister_location('aq','node4')

select * from pgq_node.unregister_location('nope','node4')

select * from public.evs('aq')

select pgq_node.maint_watermark('aq')

select pgq_node.maint_watermark('nope')

select * from pgq_node.drop_node('aq','node1')

select * from pgq_node.unregister_subscriber('aq','node2')

select * from pgq_node.unregister_subscriber('aq','node2')

select * from pgq_node.unregister_subscriber('nope','node2')

select * from pgq_node.unregister_subscriber('aq','node3')

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select co_name from pgq.consumer order by 1

select * from pgq_node.promote_branch('aq')

select * from pgq_node.promote_branch('nope')

select * from pgq_node.demote_root('nope',1,'node2')

select * from pgq_node.demote_root('aq',2,'node2')

select * from pgq_node.demote_root('aq',3,'node2')

select * from pgq_node.demote_root('aq',1,'node77')

select * from pgq_node.demote_root('aq',1,'node2')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.demote_root('aq',1,'node2')

select * from pgq_node.demote_root('aq',3,'node2')

select * from pgq_node.get_node_info('aq')

select * from pgq_node.demote_root('aq',2,'node2')

select * from pgq_node.demote_root('aq',4,'node2')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select tick_id from pgq.tick order by 1

select * from pgq_node.demote_root('aq',3,'node2')

select * from pgq_node.demote_root('aq',3,'node2')

select * from pgq_node.get_node_info('aq')

select * from pgq_node.node_info

select * from pgq_node.local_state order by 2

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

-- differs: message names the queue
select * from pgq_node.set_global_watermark('aq',3)

-- differs: message names the queue
select * from pgq_node.set_global_watermark('aq',2)

-- differs: message names the queue
select * from pgq_node.set_global_watermark('aq',null)

-- differs: message names the queue
select * from pgq_node.set_global_watermark('aq',777)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select pgq_node.maint_watermark('aq')

select * from pgq_node.promote_branch('aq')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.local_state order by 2

select * from public.evs('aq')

select * from pgq_node.drop_node('aq','nodeX')

select * from pgq_node.drop_node('aq','node3')

select * from pgq_node.drop_node('aq','node1')

select * from pgq_node.drop_node('nope','node1')

select * from pgq_node.node_location

select * from pgq.queue

select co_name from pgq.consumer order by 1

select * from pgq_node.register_location('bq','node1','dbname=node1',false)

select * from pgq_node.register_location('bq','node2','dbname=node2',false)

select * from pgq_node.register_location('bq','node3','dbname=node3',false)

select * from pgq_node.create_node('bq','branch','node2','node2_worker',null,100,null)

select * from pgq_node.create_node('bq','branch','node2','node2_worker','nodeXX',100,null)

select * from pgq_node.create_node('bq','branch','node2','node2_worker','node1',null,null)

select * from pgq_node.create_node('bq','branch','node2','node2_worker','node1',100,'xx')

select * from pgq_node.create_node('bq','branch','node2','node2_worker','node1',100,null)

select * from pgq_node.get_node_info('bq')

select * from pgq_node.get_worker_state('bq')

select * from pgq_node.local_state order by 1,2

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from pgq_node.register_subscriber('bq','node3','node3_worker',null)

select pgq.ticker('bq',101,'2020-01-01',1001)

select pgq.ticker('bq',102,'2020-01-01',1002)

select pgq.ticker('bq',105,'2020-01-01',1005)

select * from pgq_node.set_global_watermark('bq',102)

select * from pgq_node.set_global_watermark('bq',103)

select * from pgq_node.set_global_watermark('bq',104)

select queue_name, consumer_name, last_tick, current_batch from pgq.get_consumer_info() order by 1,2

select * from pgq_node.get_node_info('bq')

select * from pgq_node.set_consumer_completed('bq','node2_worker',105)

select * from pgq_node.get_worker_state('bq')

select * from pgq_node.set_subscriber_watermark('bq','node3',105)

select * from pgq_node.get_worker_state('bq')

select * from pgq_node.unregister_location('bq','node1')

select * from pgq_node.unregister_location('bq','node3')

select * from pgq_node.register_location('bq','node9','x',false)

select * from pgq_node.unregister_location('bq','node9')

select * from pgq_node.drop_node('bq','node2')

select * from pgq_node.drop_node('bq','node3')

select * from pgq_node.drop_node('bq','node2')

select * from pgq_node.node_location

select * from pgq_node.register_location('lq','node1','dbname=node1',false)

select * from pgq_node.register_location('lq','node2','dbname=node2',false)

select * from pgq_node.create_node('lq','leaf','node2','lq_worker','node1',200,'nope')

select * from pgq_node.create_node('lq','leaf','node2','lq_worker','node1',null,null)

select * from pgq_node.create_node('lq','leaf','node2','lq_worker',null,200,null)

select * from pgq_node.create_node('lq','leaf','node2',null,'node1',200,null)

select * from pgq_node.create_node('lq','leaf','node2','lq_worker','node1',200,null)

select * from pgq_node.get_node_info('lq')

select * from pgq_node.get_worker_state('lq')

select * from pgq_node.get_subscriber_info('lq')

select * from pgq_node.register_subscriber('lq','node1','w',null)

select * from pgq_node.set_global_watermark('lq',201)

select * from pgq_node.set_global_watermark('lq',null)

-- differs: message names the queue
select * from pgq_node.set_subscriber_watermark('lq','node1',201)

select * from pgq_node.demote_root('lq',1,'node1')

select * from pgq_node.promote_branch('lq')

select pgq_node.is_root_node('lq'), pgq_node.is_leaf_node('lq')

select * from pgq_node.unregister_location('lq','node1')

select * from pgq_node.unregister_subscriber('lq','node1')

select pgq_node.maint_watermark('lq')

select * from pgq_node.register_location('cq','cn','dbname=cn',false)

select * from pgq_node.create_node('cq','root','cn','cq_worker',null,null,null)

select * from pgq_node.register_location('p1','src','dbname=src',false)

select * from pgq_node.register_location('p1','dst','dbname=dst',false)

select * from pgq_node.create_node('p1','leaf','dst','p1_worker','src',300,'cq')

select * from pgq_node.get_node_info('p1')

select * from pgq_node.get_worker_state('p1')

select * from pgq_node.get_node_info('cq')

select * from pgq_node.get_worker_state('cq')

select * from pgq_node.set_partition_watermark('cq','p1',301)

select * from pgq_node.set_partition_watermark('cq','p1',301)

select * from pgq_node.set_partition_watermark('cq','p1',300)

select * from pgq_node.set_partition_watermark('cq','nope',301)

select * from pgq_node.set_partition_watermark('nope','p1',301)

select * from pgq_node.set_partition_watermark('cq','lq',301)

select * from pgq_node.local_state order by 1,2

select queue_name, queue_external_ticker, queue_disable_insert, queue_extra_maint from pgq.queue order by 1

select * from pgq_node.drop_node('cq','cn')

select * from pgq_node.drop_node('p1','dst')

select * from pgq_node.drop_node('cq','cn')

select * from pgq_node.drop_node('lq','node1')

select * from pgq_node.drop_node('lq','node2')

select * from pgq_node.node_location

select pgq_node.version(), pgq_node.upgrade_schema()
