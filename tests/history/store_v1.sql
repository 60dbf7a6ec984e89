BEGIN TRANSACTION;
CREATE TABLE forkpoint_store (
	version INTEGER NOT NULL
);
INSERT INTO "forkpoint_store" VALUES(1);
CREATE TABLE incident_hosts (
	id TEXT NOT NULL, 
	host TEXT NOT NULL, 
	event BIGINT NOT NULL, 
	suspect BOOLEAN NOT NULL, 
	gpus TEXT NOT NULL, 
	chance FLOAT, 
	gpu_chance FLOAT, 
	PRIMARY KEY (id, host)
);
INSERT INTO "incident_hosts" VALUES('f5b834a4d2802ab59d617fc3','vm',4711805762727596321,1,'[0]',NULL,NULL);
CREATE TABLE incidents (
	id TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	cause TEXT NOT NULL, 
	action TEXT NOT NULL, 
	symptom TEXT, 
	confidence FLOAT NOT NULL, 
	headline TEXT NOT NULL, 
	fingerprint TEXT, 
	fork TEXT NOT NULL, 
	job TEXT, 
	job_user TEXT, 
	job_commit TEXT, 
	run TEXT, 
	attempt INTEGER NOT NULL, 
	world INTEGER NOT NULL, 
	suspects TEXT NOT NULL, 
	gpu_hours FLOAT, 
	resolved_at BIGINT, 
	resolved_note TEXT, 
	resolved_commit TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "incidents" VALUES('f5b834a4d2802ab59d617fc3',1794705508,'divergent-path','fix-code','watchdog-timeout',0.95,'Rank 0 called all_reduce at metrics.py:15 while the other 3 called another all_reduce.','fb263adff341ce18','all_reduce (default) in main; suspects in compute < log_progress < main','pretrain','ada','c0ffee','run-1',0,4,'[0]',0.0233,1794846040,'call it on every rank','feedbeef');
CREATE TABLE verdicts (
	id TEXT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "verdicts" VALUES('f5b834a4d2802ab59d617fc3','{"schema": "forkpoint.verdict/1", "cause": "divergent-path"}');
CREATE INDEX incidents_by_fork ON incidents (fingerprint, at);
CREATE INDEX incidents_by_run ON incidents (run, attempt);
CREATE INDEX incidents_by_time ON incidents (at);
CREATE INDEX hosts_by_event ON incident_hosts (host, event, suspect, chance, gpu_chance) WHERE chance IS NOT NULL;
CREATE INDEX hosts_suspected ON incident_hosts (host, event) WHERE suspect;
CREATE INDEX incidents_resolved ON incidents (fingerprint, at) WHERE resolved_at IS NOT NULL;
COMMIT;
