"""Laboratories: nodes in real databases that several tests are written on.

`pair` is a root and a leaf driven by hand; `leaf` runs the leaf's worker round by round on Spark,
`in_process` without it; `first_copy` and `compare` have a ticker and a worker in a thread;
`status_page` is a set with two leaves and no worker. With branches: `chain` is made by the commands
and its workers run round by round, `cascade` is a root and a branch driven by SQL, `tree` has any
depth and no workers. `sets` has several sets over some databases, `combined` parts that are merged
into a queue of their own. `writers` and `backup` act on them: databases or whole servers go back.
"""
