select pgq_node.register_location(q,'n'||i,'dbname=n'||i,false) from generate_series(1,4) i, (values ('b'),('l'),('r')) x(q)

select pgq.create_queue('r')

select pgq.create_queue('b')

select pgq.insert_event('b','x','y')

select * from pgq_node.create_node('b','branch','n2','b_worker','n1',100,null)

select * from pgq_node.create_node('r','root','n2','r_worker',null,null,null)

-- differs: an unused sequence counts as 0, else the first event goes unnoticed
select queue_name, tick_id, tick_event_seq from pgq.tick join pgq.queue on queue_id=tick_queue order by 1,2

select queue_name, last_value, is_called from pgq.queue, lateral (select * from query_seq(queue_tick_seq)) x

select * from pgq_node.register_location('r','n3',null,true)

select * from pgq_node.register_location('r','n77',null,true)

select * from public.evs('r')

select * from pgq_node.register_consumer('r','myc','n3',1)

select * from pgq_node.unregister_location('r','n3')

select * from pgq_node.register_consumer('b','myc','n3',1)

select * from pgq_node.unregister_location('b','n3')

select * from pgq_node.drop_node('b','n3')

select * from pgq_node.drop_node('r','n3')

select queue_name, queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_extra_maint from pgq.queue

select * from pgq_node.get_subscriber_info('r')

select pgq.register_consumer('r','.x.watermark')
