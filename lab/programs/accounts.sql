\set any random(1, 1000000)
\set hot random(1, 3000)
\set aid case when :any < 10000 then :any * 70 else :hot end
select abalance from pgbench_accounts where aid = :aid;
