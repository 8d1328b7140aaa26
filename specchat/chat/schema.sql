-- The tables of the store, as version 4 of the file. A change of these tables, or of what they hold,
-- needs a script in database.py that brings files of the version before to the next.

CREATE TABLE conversation (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    changed REAL NOT NULL,
    system_prompt TEXT NOT NULL DEFAULT '',
    pair TEXT NOT NULL DEFAULT '',
    leaf INTEGER,
    deleted REAL,
    preset TEXT NOT NULL DEFAULT '',
    titled_by TEXT NOT NULL DEFAULT '',
    schema TEXT -- as it was typed and as JSON Schema, both in JSON
);
CREATE INDEX conversation_by_change ON conversation (deleted, changed DESC);
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,
    parent INTEGER,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    created REAL NOT NULL,
    finish TEXT,
    statistics TEXT,
    pieces TEXT,
    deleted REAL,
    attachments TEXT,
    reasoning TEXT NOT NULL DEFAULT '',
    tool_calls TEXT,
    mark TEXT NOT NULL DEFAULT '',
    schema TEXT NOT NULL DEFAULT '' -- JSON Schema
);
CREATE INDEX message_by_conversation ON message (conversation, id);
CREATE INDEX message_by_deletion ON message (deleted) WHERE deleted IS NOT NULL;
CREATE TABLE steps (
    message INTEGER PRIMARY KEY REFERENCES message ON DELETE CASCADE,
    target TEXT NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE image (
    digest TEXT PRIMARY KEY, -- SHA-256
    data BLOB NOT NULL
);
CREATE TABLE shown ( -- the images of messages
    message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES image,
    PRIMARY KEY (message, place)
);
CREATE TABLE used ( -- numbers up to these, which removed rows may have had, are not given again
    conversation INTEGER NOT NULL,
    message INTEGER NOT NULL
);
INSERT INTO used VALUES (0, 0);
CREATE TABLE preset (
    name TEXT PRIMARY KEY,
    system_prompt TEXT NOT NULL,
    sampling TEXT NOT NULL,
    schema TEXT NOT NULL DEFAULT '' -- as it was typed
);
CREATE VIRTUAL TABLE found USING fts5 (
    text, reasoning, content='message', content_rowid='id'
);
CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
    INSERT INTO found (rowid, text, reasoning) VALUES (new.id, new.text, new.reasoning);
END;
CREATE TRIGGER message_gone AFTER DELETE ON message BEGIN
    INSERT INTO found (found, rowid, text, reasoning)
    VALUES ('delete', old.id, old.text, old.reasoning);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text, reasoning ON message BEGIN
    INSERT INTO found (found, rowid, text, reasoning)
    VALUES ('delete', old.id, old.text, old.reasoning);
    INSERT INTO found (rowid, text, reasoning) VALUES (new.id, new.text, new.reasoning);
END;
