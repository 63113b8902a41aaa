"""The tables, as numbered migration steps. Forward only.

`PRAGMA user_version` counts the steps that a database has taken; opening it takes the rest, each in
a transaction of its own. A released step is never edited: a later one corrects it.
tests/store/test_migrations.py opens a database of every earlier version.

Tables refer to partitions by number (`smq.model.catalog`). Deleting a topic deletes its partitions,
their offsets and segments, so a new topic of the same name sees none of them.
"""

from smq.store.protocols import packed_json

MIGRATIONS = (
    """
    CREATE TABLE counters (
        name TEXT PRIMARY KEY,
        next INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO counters VALUES ('partition_number', 1), ('producer_id', 0);

    CREATE TABLE topics (
        id TEXT PRIMARY KEY,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        UNIQUE (namespace, name)
    ) WITHOUT ROWID;

    CREATE TABLE configs (
        topic_id TEXT NOT NULL REFERENCES topics ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (topic_id, name)
    ) WITHOUT ROWID;

    CREATE TABLE partitions (
        number INTEGER PRIMARY KEY,
        topic_id TEXT NOT NULL REFERENCES topics ON DELETE CASCADE,
        partition INTEGER NOT NULL,
        log INTEGER NOT NULL,
        log_start_offset INTEGER NOT NULL DEFAULT 0,
        UNIQUE (topic_id, partition)
    );

    CREATE TABLE segments (
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        base_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        kind TEXT NOT NULL,
        path TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        crc32c INTEGER NOT NULL,
        record_count INTEGER NOT NULL,
        min_timestamp_ms INTEGER NOT NULL,
        max_timestamp_ms INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        committed_ms INTEGER NOT NULL,
        PRIMARY KEY (partition_number, base_offset)
    ) WITHOUT ROWID;

    CREATE TABLE groups (
        group_id TEXT PRIMARY KEY,
        protocol_type TEXT,
        generation INTEGER NOT NULL,
        protocol_name TEXT,
        leader TEXT,
        empty_since_ms INTEGER
    ) WITHOUT ROWID;

    CREATE TABLE group_members (
        group_id TEXT NOT NULL REFERENCES groups ON DELETE CASCADE,
        position INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        instance_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        session_timeout_ms INTEGER NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        protocols TEXT NOT NULL,
        assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, position)
    ) WITHOUT ROWID;

    CREATE TABLE committed_offsets (
        group_id TEXT NOT NULL,
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        commit_ms INTEGER NOT NULL,
        expire_ms INTEGER,
        PRIMARY KEY (group_id, partition_number)
    ) WITHOUT ROWID;
    CREATE INDEX committed_offsets_of_partition ON committed_offsets (partition_number);
    """,
    """
    CREATE TABLE payloads (
        partition_number INTEGER NOT NULL,
        base_offset INTEGER NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (partition_number, base_offset, id),
        FOREIGN KEY (partition_number, base_offset) REFERENCES segments ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE INDEX payloads_by_id ON payloads (id);
    """,
    # A member's protocols become bytes (smq.store.protocols); they were JSON with hexadecimal text.
    """
    ALTER TABLE group_members ADD COLUMN packed BLOB NOT NULL DEFAULT x'';
    UPDATE group_members SET packed = packed_json(protocols);
    ALTER TABLE group_members DROP COLUMN protocols;
    ALTER TABLE group_members RENAME COLUMN packed TO protocols;
    """,
    # Sweeps look up paths of segments, a page at a time.
    """
    CREATE INDEX segments_by_path ON segments (path);
    """,
    # Files whose records other segments hold now; they stay while a reader may have their names.
    """
    CREATE TABLE replaced_files (
        path TEXT PRIMARY KEY,
        replaced_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX replaced_files_by_time ON replaced_files (replaced_ms);
    """,
    # Transactional ids; what their open transactions have touched; offsets that wait for a commit.
    """
    INSERT INTO counters VALUES ('coordinator_epoch', 0);

    CREATE TABLE transactions (
        transactional_id TEXT PRIMARY KEY,
        producer_id INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        previous_producer_id INTEGER NOT NULL,
        next_producer_id INTEGER NOT NULL,
        last_epoch INTEGER NOT NULL,
        timeout_ms INTEGER NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        started_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE transaction_partitions (
        transactional_id TEXT NOT NULL REFERENCES transactions ON DELETE CASCADE,
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        PRIMARY KEY (transactional_id, partition_number)
    ) WITHOUT ROWID;
    CREATE INDEX transactions_of_partition ON transaction_partitions (partition_number);

    CREATE TABLE transaction_groups (
        transactional_id TEXT NOT NULL REFERENCES transactions ON DELETE CASCADE,
        group_id TEXT NOT NULL,
        PRIMARY KEY (transactional_id, group_id)
    ) WITHOUT ROWID;

    CREATE TABLE transaction_offsets (
        group_id TEXT NOT NULL,
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        transactional_id TEXT NOT NULL REFERENCES transactions ON DELETE CASCADE,
        offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        commit_ms INTEGER NOT NULL,
        PRIMARY KEY (group_id, partition_number, transactional_id)
    ) WITHOUT ROWID;
    CREATE INDEX transaction_offsets_by_id ON transaction_offsets (transactional_id);
    CREATE INDEX transaction_offsets_of_partition ON transaction_offsets (partition_number);
    """,
    # Log compaction.
    """
    ALTER TABLE segments ADD COLUMN compacted_ms INTEGER NOT NULL DEFAULT 0;
    """,
    # Who has changed which setting; the newest of them.
    """
    CREATE TABLE config_changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        changed_ms INTEGER NOT NULL,
        resource_type TEXT NOT NULL,
        resource TEXT NOT NULL,
        name TEXT NOT NULL,
        before TEXT,
        after TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL
    );
    CREATE INDEX config_changes_of_resource ON config_changes (resource_type, resource);
    """,
    # Settings that change while the broker runs: of all nodes and of one, and what else has some.
    """
    CREATE TABLE resource_configs (
        resource_type TEXT NOT NULL,
        resource TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (resource_type, resource, name)
    ) WITHOUT ROWID;
    """,
    # Typed columns: how many records' values do not fit the schema.
    """
    ALTER TABLE segments ADD COLUMN untyped_count INTEGER NOT NULL DEFAULT 0;
    """,
    # Which of two commits of an offset came later; a time does not tell.
    """
    INSERT INTO counters VALUES ('arrival', 1);
    ALTER TABLE committed_offsets ADD COLUMN arrival INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE transaction_offsets ADD COLUMN arrival INTEGER NOT NULL DEFAULT 0;
    """,
    # Files that are being deleted: no line may name them any more. The newest have the highest
    # numbers.
    """
    CREATE TABLE condemned_files (
        number INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE
    );
    """,
    # Transactions that a power loss must not tear, and where it has.
    """
    ALTER TABLE transactions ADD COLUMN is_synced INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE transactions ADD COLUMN is_torn INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE transaction_partitions ADD COLUMN generation INTEGER NOT NULL DEFAULT -1;
    """,
    # By which times retention and compaction go. A record's own may be of the future: until now it
    # counted.
    """
    ALTER TABLE segments ADD COLUMN oldest_ms INTEGER NOT NULL DEFAULT -1;
    ALTER TABLE segments ADD COLUMN newest_ms INTEGER NOT NULL DEFAULT -1;
    UPDATE segments SET
        oldest_ms = iif(min_timestamp_ms < 0, committed_ms, min(min_timestamp_ms, committed_ms)),
        newest_ms = iif(max_timestamp_ms < 0, committed_ms, min(max_timestamp_ms, committed_ms));
    """,
    # Payloads are named by files, before their lines, and forgotten after them, both in portions.
    """
    CREATE TABLE payload_files (
        number INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        is_gone INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX gone_payload_files ON payload_files (is_gone) WHERE is_gone = 1;
    CREATE TABLE payload_names (
        file INTEGER NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (file, id)
    ) WITHOUT ROWID;
    INSERT INTO payload_files (path)
        SELECT DISTINCT path FROM segments JOIN payloads USING (partition_number, base_offset);
    INSERT INTO payload_names
        SELECT payload_files.number, payloads.id FROM payloads
        JOIN segments USING (partition_number, base_offset) JOIN payload_files USING (path);
    CREATE INDEX payload_names_by_id ON payload_names (id);
    DROP TABLE payloads;
    CREATE TRIGGER payload_file_is_gone AFTER DELETE ON segments BEGIN
        UPDATE payload_files SET is_gone = 1 WHERE path = old.path;
    END;
    """,
    # Payloads that are being deleted: no new record may name them.
    """
    CREATE TABLE condemned_payloads (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        since_ms INTEGER NOT NULL
    );
    """,
    # Groups whose offsets are being forgotten, some at a time.
    """
    CREATE TABLE deleting_groups (group_id TEXT PRIMARY KEY) WITHOUT ROWID;
    """,
    # Batches as they were sent, which lie under an open transaction and have left the log.
    """
    CREATE TABLE undecided_segments (
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        base_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        kind TEXT NOT NULL,
        path TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        crc32c INTEGER NOT NULL,
        record_count INTEGER NOT NULL,
        min_timestamp_ms INTEGER NOT NULL,
        max_timestamp_ms INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        committed_ms INTEGER NOT NULL,
        compacted_ms INTEGER NOT NULL,
        untyped_count INTEGER NOT NULL,
        oldest_ms INTEGER NOT NULL,
        newest_ms INTEGER NOT NULL,
        PRIMARY KEY (partition_number, base_offset)
    ) WITHOUT ROWID;
    CREATE INDEX undecided_segments_by_path ON undecided_segments (path);
    CREATE TRIGGER undecided_payload_file_is_gone AFTER DELETE ON undecided_segments BEGIN
        UPDATE payload_files SET is_gone = 1 WHERE path = old.path;
    END;
    """,
    # Who may log in, and who may do what (smq.security). The codes are Kafka's.
    """
    CREATE TABLE scram_credentials (
        user TEXT NOT NULL,
        mechanism INTEGER NOT NULL CHECK (mechanism IN (1, 2)),
        salt BLOB NOT NULL,
        stored_key BLOB NOT NULL,
        server_key BLOB NOT NULL,
        iterations INTEGER NOT NULL CHECK (iterations BETWEEN 4096 AND 16384),
        PRIMARY KEY (user, mechanism)
    ) WITHOUT ROWID;

    CREATE TABLE acls (
        resource_type INTEGER NOT NULL CHECK (resource_type BETWEEN 2 AND 7),
        name TEXT NOT NULL,
        pattern_type INTEGER NOT NULL CHECK (pattern_type IN (3, 4)),
        principal TEXT NOT NULL,
        host TEXT NOT NULL,
        operation INTEGER NOT NULL CHECK (operation BETWEEN 2 AND 15),
        permission INTEGER NOT NULL CHECK (permission IN (2, 3)),
        PRIMARY KEY (resource_type, name, pattern_type, principal, host, operation, permission)
    ) WITHOUT ROWID;
    """,
    # Since when a topic has had so many partitions: SeaweedMQ's clients name them by that.
    """
    CREATE TABLE layouts (
        topic_id TEXT NOT NULL REFERENCES topics ON DELETE CASCADE,
        partition_count INTEGER NOT NULL,
        began_ns INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition_count)
    ) WITHOUT ROWID;
    INSERT INTO layouts SELECT topics.id, count(*), topics.created_ms * 1000000
        FROM topics JOIN partitions ON topic_id = topics.id
        WHERE namespace != '' GROUP BY topics.id;
    """,
    # What requests could say until they were refused. Nothing has a name longer than a request's,
    # no user can log in as unix/..., and Python reads numbers that Kafka does not: 0.5_0, and
    # digits of other scripts. A rule about nobody stays: a topic that has rules is not everybody's.
    # Its principal gets a colon, since its own may have been cut off.
    """
    DELETE FROM acls WHERE length(CAST(name AS BLOB)) > 32767;
    UPDATE OR REPLACE acls SET principal = substr(principal, 1, 8000) || ':'
        WHERE length(CAST(principal AS BLOB)) > 32767;
    UPDATE OR REPLACE acls SET host = substr(host, 1, 8000)
        WHERE length(CAST(host AS BLOB)) > 32767;
    DELETE FROM scram_credentials
        WHERE length(CAST(user AS BLOB)) > 32767 OR user GLOB 'unix/*';
    UPDATE configs SET value = replace(value, '_', '') WHERE name = 'min.cleanable.dirty.ratio';
    DELETE FROM configs WHERE name = 'min.cleanable.dirty.ratio'
        AND length(CAST(value AS BLOB)) != length(value);
    """,
    # Which logs have led a partition, and where it moves (docs/leadership.md). A partition that was
    # never to move has attempt 0 and no leaderships. Moves that have ended, the newest of them.
    """
    ALTER TABLE partitions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE partitions ADD COLUMN target INTEGER;
    ALTER TABLE partitions ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;

    CREATE TABLE leaderships (
        partition_number INTEGER NOT NULL REFERENCES partitions ON DELETE CASCADE,
        epoch INTEGER NOT NULL,
        log INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        end_offset INTEGER,
        PRIMARY KEY (partition_number, epoch)
    ) WITHOUT ROWID;

    CREATE TABLE moves (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        began_ms INTEGER NOT NULL,
        took_ms INTEGER NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        source INTEGER NOT NULL,
        target INTEGER NOT NULL,
        principal TEXT NOT NULL,
        client_host TEXT NOT NULL,
        reason TEXT NOT NULL,
        outcome TEXT NOT NULL
    );
    """,
)

# SQL functions that the steps call.
FUNCTIONS = {"packed_json": packed_json}
