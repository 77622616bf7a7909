"""For pipelines of users: elements and rows of theirs, counts and token shards without tasks."""
