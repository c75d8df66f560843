-- :users users, with names that are not all ASCII.
insert into user_info (userid, engname, cnname, occupation, birthday, signname, email, qq, crt_time)
select i, 'digoal.zhou' || i, '德哥' || i, 'DBA', date '1970-01-01' + (i % 20000),
       E'公益是一辈子的事, I\'m Digoal.Zhou, Just do it!', 'digoal' || i || '@126.com',
       276732431 + i, clock_timestamp()
from generate_series(1, :users) i;
insert into user_session (userid) select i from generate_series(1, :users) i;
