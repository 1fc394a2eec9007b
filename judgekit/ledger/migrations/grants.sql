-- What the replicas need, and no more: they neither delete lines nor create tokens.
GRANT USAGE ON SCHEMA judgekit TO {role};
GRANT SELECT ON judgekit.migration, judgekit.token TO {role};
GRANT SELECT, INSERT, UPDATE ON judgekit.line, judgekit.spend TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON judgekit.judging, judgekit.replica, judgekit.reply TO {role};
