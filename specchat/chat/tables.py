"""The tables of the history: how a new file gets them, and an older one those of this version."""

from pathlib import Path

TABLES = Path(__file__).with_name("schema.sql").read_text("utf-8")
"""The script that makes the tables."""
VERSION = 4
"""The version of the tables, which the file stores as its `user_version`; 0 is an empty file."""
FROM_VERSION_1 = (
    "UPDATE message SET statistics = json_remove(json_set("
    " CASE WHEN json_type(statistics, '$.sampling.max_tokens') IS NULL THEN statistics ELSE"
    " json_set(statistics, '$.asked_with.max_tokens',"
    " json_extract(statistics, '$.sampling.max_tokens')) END,"
    " '$.asked_with.temperature', json_extract(statistics, '$.temperature'), '$.own',"
    " json((SELECT json_group_array(key) FROM json_each(statistics, '$.sampling')))),"
    " '$.temperature', '$.sampling') WHERE json_valid(statistics)"
    " AND json_type(statistics, '$.asked_with') = 'object'"
    " AND json_type(statistics, '$.temperature') IS NOT NULL;"
)
"""Keeps each option of an answer once; version 1 had some of them three times."""

FROM_VERSION_2 = (
    "CREATE TABLE image (digest TEXT PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE shown (message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,"
    " place INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL REFERENCES image,"
    " PRIMARY KEY (message, place));"
)
"""Adds the tables of images as version 3 had them, whatever later versions make of them."""
FROM_VERSION_3 = (
    "CREATE TABLE used (conversation INTEGER NOT NULL, message INTEGER NOT NULL);"
    "INSERT INTO used VALUES (0, 0);"
)
"""Adds the numbers that are not given again."""
UPDATES = {1: FROM_VERSION_1, 2: FROM_VERSION_2, 3: FROM_VERSION_3}
"""The scripts that bring a file from a version to the next."""

SCHEMA = {
    "conversation": "id, title, created, changed, system_prompt, pair, leaf, deleted, preset,"
    " titled_by, schema",
    "message": "id, conversation, parent, role, text, created, finish, statistics, pieces, deleted,"
    " attachments, reasoning, tool_calls, mark, schema",
    "steps": "message, target, data",
    "image": "digest, data",
    "shown": "message, place, name, digest",
    "used": "conversation, message",
    "preset": "name, system_prompt, sampling, schema",
    "found": "text, reasoning",
}
"""The columns of each table; opening a file checks that they can be read and written."""
