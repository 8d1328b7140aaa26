-- The tables of the store. Each part brings the file to the next version, in one transaction; parts
-- are only ever added.

CREATE TABLE conversation (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    changed REAL NOT NULL,
    system_prompt TEXT NOT NULL DEFAULT '',
    pair TEXT NOT NULL DEFAULT '',
    leaf INTEGER,
    deleted REAL
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
    deleted REAL
);
CREATE INDEX message_by_conversation ON message (conversation, id);
CREATE TABLE preset (
    name TEXT PRIMARY KEY,
    system_prompt TEXT NOT NULL,
    sampling TEXT NOT NULL
);
CREATE VIRTUAL TABLE found USING fts5 (text, content='message', content_rowid='id');
CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
    INSERT INTO found (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_gone AFTER DELETE ON message BEGIN
    INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text ON message BEGIN
    INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
    INSERT INTO found (rowid, text) VALUES (new.id, new.text);
END;

-- next version

ALTER TABLE message ADD COLUMN attachments TEXT;

-- next version

ALTER TABLE conversation ADD COLUMN preset TEXT NOT NULL DEFAULT '';

-- next version

CREATE INDEX message_by_deletion ON message (deleted) WHERE deleted IS NOT NULL;

-- next version

-- `separate_reasoning` then moves the reasoning that `text` holds. The words to search are indexed
-- again by the next version.
ALTER TABLE message ADD COLUMN reasoning TEXT NOT NULL DEFAULT '';
ALTER TABLE message ADD COLUMN tool_calls TEXT;
DROP TRIGGER message_added;
DROP TRIGGER message_gone;
DROP TRIGGER message_changed;
DROP TABLE found;

-- next version

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
INSERT INTO found (found) VALUES ('rebuild');

-- next version

CREATE TABLE steps (
    message INTEGER PRIMARY KEY REFERENCES message ON DELETE CASCADE,
    target TEXT NOT NULL,
    data BLOB NOT NULL
);

-- next version

ALTER TABLE message ADD COLUMN mark TEXT NOT NULL DEFAULT '';

-- next version

ALTER TABLE conversation ADD COLUMN titled_by TEXT NOT NULL DEFAULT '';

-- next version

-- A preset has the schema as it was typed, a message as JSON Schema, a conversation both, as JSON.
ALTER TABLE conversation ADD COLUMN schema TEXT;
ALTER TABLE message ADD COLUMN schema TEXT NOT NULL DEFAULT '';
ALTER TABLE preset ADD COLUMN schema TEXT NOT NULL DEFAULT '';
