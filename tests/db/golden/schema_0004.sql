BEGIN TRANSACTION;
CREATE TABLE attempts (
	run INTEGER NOT NULL /* the run */, 
	attempt INTEGER NOT NULL /* 1 for the first process that worked on the run, 2 for the next, ... */, 
	token TEXT /* fencing token */, 
	host TEXT /* host name */, 
	pid BIGINT /* process id on the host */, 
	cluster TEXT /* name of the cluster */, 
	job_id TEXT /* id that the scheduler gave */, 
	restart BIGINT /* restart count of the scheduler */, 
	array_task BIGINT /* task in a job array */, 
	code_id INTEGER /* code */, 
	environment_id INTEGER /* machine and libraries */, 
	started_at DOUBLE /* s since 1970, UTC */, 
	last_seen_at DOUBLE /* time of the newest record, s since 1970, UTC */, 
	ended_at DOUBLE /* s since 1970, UTC; NULL while it runs or if it was killed */, 
	outcome TEXT /* completed, diverged, stopped, preempted, failed or fenced; NULL without an end record */, 
	reason TEXT /* why it ended */, 
	error TEXT /* the error, where one ended it */, 
	resume_step BIGINT /* step that it started from */, 
	resume_tokens BIGINT /* tokens that it started from */, 
	cut_step BIGINT /* a later attempt started again from here: rows past this step are dropped */, 
	cut_tokens BIGINT /* tokens at cut_step */, 
	last_step BIGINT /* newest step seen */, 
	last_tokens BIGINT /* tokens at last_step */, 
	train_loss_nats DOUBLE /* newest training loss, nats a token */, 
	tokens_per_s DOUBLE /* newest throughput, tokens a second */, 
	wall_s DOUBLE /* wall time of the attempt, s */, 
	train_wall_s DOUBLE /* wall time spent in training steps, s */, 
	CONSTRAINT pk_attempts PRIMARY KEY (run, attempt), 
	CONSTRAINT fk_attempts_run FOREIGN KEY(run) REFERENCES runs (run), 
	CONSTRAINT fk_attempts_code_id FOREIGN KEY(code_id) REFERENCES codes (code_id), 
	CONSTRAINT fk_attempts_environment_id FOREIGN KEY(environment_id) REFERENCES environments (environment_id)
);
INSERT INTO "attempts" VALUES(1,1,'t','node-1',23543,NULL,NULL,NULL,NULL,1,1,1.79600714920294451709e+09,1.79600714921929407118e+09,1.79600714921929407118e+09,'completed','',NULL,0,0,NULL,NULL,3,3072,1.0,NULL,1.0,0.9);
CREATE TABLE checkpoints (
	run INTEGER NOT NULL /* the run */, 
	step BIGINT NOT NULL /* optimiser step */, 
	n_tokens BIGINT /* training tokens seen */, 
	path TEXT NOT NULL /* relative to the run directory */, 
	bytes BIGINT /* size, bytes */, 
	attempt INTEGER NOT NULL /* attempt that wrote it */, 
	time DOUBLE /* s since 1970, UTC */, 
	CONSTRAINT pk_checkpoints PRIMARY KEY (run, step), 
	CONSTRAINT fk_checkpoints_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "checkpoints" VALUES(1,3,3072,'ckpt/step-000000003.pt',10,1,1.79600714921898102762e+09);
CREATE TABLE codes (
	code_id INTEGER NOT NULL /* number of the code in this database */, 
	content_hash TEXT NOT NULL /* SHA-256 of the content, hex */, 
	code_commit TEXT /* commit of the repository */, 
	dirty BOOLEAN /* whether files differed from the commit */, 
	snapshot TEXT /* folder of the code snapshot */, 
	content TEXT NOT NULL /* JSON as the job wrote it */, 
	CONSTRAINT pk_codes PRIMARY KEY (code_id), 
	CONSTRAINT uq_codes_content_hash UNIQUE (content_hash)
);
INSERT INTO "codes" VALUES(1,'12cee813a484c0f24ed27dd8292923a86f7300cd9e41a7d337008e2e202b62ba','abc',0,NULL,'{"commit":"abc","dirty":false}');
CREATE TABLE environments (
	environment_id INTEGER NOT NULL /* number of the environment in this database */, 
	content_hash TEXT NOT NULL /* SHA-256 of the content, hex */, 
	device TEXT /* cpu, or the name of the accelerator */, 
	threads BIGINT /* threads of a process */, 
	cpu TEXT /* model of the processor */, 
	python TEXT /* version */, 
	torch TEXT /* version */, 
	lightning TEXT /* version */, 
	content TEXT NOT NULL /* JSON as the job wrote it */, 
	CONSTRAINT pk_environments PRIMARY KEY (environment_id), 
	CONSTRAINT uq_environments_content_hash UNIQUE (content_hash)
);
INSERT INTO "environments" VALUES(1,'dc7177ff46e93df40100a82aa325022721d5d162db125c278bdddeac12b807ce','cpu',1,NULL,NULL,NULL,NULL,'{"device":"cpu","threads":1}');
CREATE TABLE evaluations (
	run INTEGER NOT NULL /* the run */, 
	split TEXT NOT NULL /* validation, or the name of another fixed set */, 
	step BIGINT NOT NULL /* optimiser step */, 
	n_tokens BIGINT /* training tokens seen */, 
	loss_nats DOUBLE /* nats a token */, 
	bits_per_byte DOUBLE /* bits a byte of text */, 
	n_tokens_evaluated BIGINT /* tokens that the loss is a mean of */, 
	final BOOLEAN NOT NULL /* at the end of the run */, 
	annealed BOOLEAN NOT NULL /* the learning rate had come down to its end */, 
	attempt INTEGER NOT NULL /* attempt that measured it */, 
	time DOUBLE /* s since 1970, UTC */, 
	CONSTRAINT pk_evaluations PRIMARY KEY (run, split, step), 
	CONSTRAINT fk_evaluations_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "evaluations" VALUES(1,'validation',3,3072,2.0,2.9,1000,1,1,1,1.79600714921897029879e+09);
CREATE TABLE events (
	event_id INTEGER NOT NULL /* number of the event, ascending */, 
	run_id TEXT NOT NULL /* the run */, 
	time DOUBLE NOT NULL /* s since 1970, UTC */, 
	state_before TEXT /* state left */, 
	state TEXT NOT NULL /* state entered */, 
	reason TEXT /* why */, 
	evidence TEXT NOT NULL /* JSON: what was seen */, 
	CONSTRAINT pk_events PRIMARY KEY (event_id)
);
INSERT INTO "events" VALUES(1,'326d5bba9e92ed11',1.79600714915385031703e+09,'planned','claimed','submitted','{"submission":"s1"}');
INSERT INTO "events" VALUES(2,'8fcea9256dcbd778',1.79600714915385031703e+09,'planned','claimed','submitted','{"submission":"s1"}');
INSERT INTO "events" VALUES(3,'326d5bba9e92ed11',1.79600714957295560843e+09,'claimed','completed',NULL,'{"attempt":1,"file":"DONE.json"}');
CREATE TABLE experiment_revisions (
	revision_id INTEGER NOT NULL /* number of the revision in this database */, 
	experiment_id INTEGER NOT NULL /* the experiment */, 
	content_hash TEXT NOT NULL /* SHA-256 of the text, hex */, 
	text TEXT NOT NULL /* the YAML as planned, or how points were imported */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_experiment_revisions PRIMARY KEY (revision_id), 
	CONSTRAINT uq_experiment_revisions_experiment_id UNIQUE (experiment_id, content_hash), 
	CONSTRAINT fk_experiment_revisions_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id)
);
INSERT INTO "experiment_revisions" VALUES(1,1,'8789e7eabb7ba5922a5087c25d315a1e5fbb6b0f97510862579d348428dbd9d4','name: demo
',1.7960071490793812275e+09);
CREATE TABLE experiment_runs (
	experiment_id INTEGER NOT NULL /* the experiment */, 
	run INTEGER NOT NULL /* the run */, 
	first_revision_id INTEGER NOT NULL /* first revision of the experiment that contains the run */, 
	last_revision_id INTEGER NOT NULL /* last revision of the experiment that contains the run */, 
	label TEXT NOT NULL /* name that figures show */, 
	size TEXT /* name of the size */, 
	budget TEXT /* token budget as written */, 
	run_group TEXT /* group of the grid */, 
	holdout BOOLEAN NOT NULL /* left out of fits, to be predicted */, 
	CONSTRAINT pk_experiment_runs PRIMARY KEY (experiment_id, run), 
	CONSTRAINT fk_experiment_runs_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CONSTRAINT fk_experiment_runs_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "experiment_runs" VALUES(1,1,1,1,'gpt+','tiny','3072',NULL,0);
INSERT INTO "experiment_runs" VALUES(1,2,1,1,'gpt+','tiny','3072',NULL,0);
CREATE TABLE experiments (
	experiment_id INTEGER NOT NULL /* number of the experiment in this database */, 
	name TEXT NOT NULL /* name in the YAML file */, 
	revision_id INTEGER /* the revision that is planned now */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_experiments PRIMARY KEY (experiment_id), 
	CONSTRAINT uq_experiments_name UNIQUE (name)
);
INSERT INTO "experiments" VALUES(1,'demo',1,1.7960071490793812275e+09);
CREATE TABLE figure_inputs (
	figure_id TEXT NOT NULL /* the figure */, 
	kind TEXT NOT NULL /* frame, fit or run */, 
	reference TEXT NOT NULL /* what it was drawn from */, 
	CONSTRAINT pk_figure_inputs PRIMARY KEY (figure_id, kind, reference), 
	CONSTRAINT fk_figure_inputs_figure_id FOREIGN KEY(figure_id) REFERENCES figures (figure_id)
);
INSERT INTO "figure_inputs" VALUES('8ee3d46d30d1','frame','final_losses');
CREATE TABLE figures (
	figure_id TEXT NOT NULL /* first 12 hex digits of the SHA-256 of name, experiment and inputs */, 
	name TEXT NOT NULL /* name of the figure */, 
	experiment TEXT /* name of the experiment */, 
	path TEXT NOT NULL /* file that was written */, 
	content_hash TEXT /* SHA-256 of the file, hex */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_figures PRIMARY KEY (figure_id)
);
INSERT INTO "figures" VALUES('8ee3d46d30d1','loss-against-compute','demo','figures/a.png',NULL,1.7960071497873618603e+09);
CREATE TABLE fit_runs (
	fit_id TEXT NOT NULL /* the fit */, 
	run_id TEXT NOT NULL /* the run */, 
	entered BOOLEAN NOT NULL /* whether the run entered the fit */, 
	reason TEXT /* why it was left out */, 
	CONSTRAINT pk_fit_runs PRIMARY KEY (fit_id, run_id), 
	CONSTRAINT fk_fit_runs_fit_id FOREIGN KEY(fit_id) REFERENCES fits (fit_id)
);
INSERT INTO "fit_runs" VALUES('eb68466b9bfd','8fcea9256dcbd778',0,'not finished');
INSERT INTO "fit_runs" VALUES('eb68466b9bfd','326d5bba9e92ed11',1,NULL);
CREATE TABLE fits (
	fit_id TEXT NOT NULL /* first 12 hex digits of the SHA-256 of record and runs */, 
	experiment TEXT /* name of the experiment */, 
	label TEXT /* method or group that was fitted */, 
	law TEXT NOT NULL /* functional form */, 
	objective TEXT /* what was minimised */, 
	objective_value DOUBLE /* the objective at the optimum */, 
	n_points INTEGER /* runs that entered */, 
	record TEXT NOT NULL /* JSON: parameters, intervals, certificate, options and versions */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_fits PRIMARY KEY (fit_id)
);
INSERT INTO "fits" VALUES('eb68466b9bfd','demo','gpt+','power','huber',0.5,1,'{"law":"power","objective":"huber","objective_value":0.5,"params":{"E":1.0}}',1.79600714974408268926e+09);
CREATE TABLE ingest_errors (
	run_id TEXT NOT NULL /* name of the run directory */, 
	file TEXT NOT NULL /* name of the file */, 
	"offset" BIGINT NOT NULL /* where the line starts, bytes */, 
	message TEXT NOT NULL /* what is wrong with it */, 
	excerpt TEXT NOT NULL /* how it begins */, 
	CONSTRAINT pk_ingest_errors PRIMARY KEY (run_id, file, "offset")
);
CREATE TABLE ingested_files (
	run INTEGER NOT NULL /* the run */, 
	attempt INTEGER NOT NULL /* attempt whose journal it is */, 
	n_bytes BIGINT NOT NULL /* bytes read, always whole lines */, 
	n_lines BIGINT NOT NULL /* lines read */, 
	CONSTRAINT pk_ingested_files PRIMARY KEY (run, attempt), 
	CONSTRAINT fk_ingested_files_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "ingested_files" VALUES(1,1,1150,8);
CREATE TABLE jobs (
	submission_id TEXT NOT NULL /* the submission */, 
	job_id TEXT NOT NULL /* id that the scheduler gave, array task included */, 
	cluster TEXT /* name of the cluster */, 
	job_dir TEXT /* folder of the pack */, 
	CONSTRAINT pk_jobs PRIMARY KEY (submission_id, job_id), 
	CONSTRAINT fk_jobs_submission_id FOREIGN KEY(submission_id) REFERENCES submissions (submission_id)
);
CREATE TABLE layer_metrics (
	run INTEGER NOT NULL /* the run */, 
	"key" INTEGER NOT NULL /* the metric */, 
	step BIGINT NOT NULL /* optimiser step */, 
	layer INTEGER NOT NULL /* layer, from 0 */, 
	value DOUBLE /* in the metric's unit; NULL is NaN */, 
	CONSTRAINT pk_layer_metrics PRIMARY KEY (run, "key", step, layer)
)
 WITHOUT ROWID

;
INSERT INTO "layer_metrics" VALUES(1,4,3,0,1.0);
INSERT INTO "layer_metrics" VALUES(1,4,3,1,2.0);
CREATE TABLE leases (
	name TEXT NOT NULL /* what is leased */, 
	owner TEXT NOT NULL /* host, process and a random token */, 
	expires_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
);
CREATE TABLE metric_keys (
	"key" INTEGER NOT NULL /* number of the metric in this database */, 
	name TEXT NOT NULL /* name in the journal */, 
	unit TEXT /* unit of the value */, 
	direction TEXT /* lower or higher is better; NULL where neither is */, 
	CONSTRAINT pk_metric_keys PRIMARY KEY ("key"), 
	CONSTRAINT uq_metric_keys_name UNIQUE (name)
);
INSERT INTO "metric_keys" VALUES(1,'loss_nats','nats/token','lower');
INSERT INTO "metric_keys" VALUES(2,'lr','1',NULL);
INSERT INTO "metric_keys" VALUES(3,'grad_norm','1',NULL);
INSERT INTO "metric_keys" VALUES(4,'residual_norm','1',NULL);
CREATE TABLE metrics (
	run INTEGER NOT NULL /* the run */, 
	"key" INTEGER NOT NULL /* the metric */, 
	step BIGINT NOT NULL /* optimiser step */, 
	value DOUBLE /* in the metric's unit; NULL is NaN */, 
	CONSTRAINT pk_metrics PRIMARY KEY (run, "key", step)
)
 WITHOUT ROWID

;
INSERT INTO "metrics" VALUES(1,1,1,3.0);
INSERT INTO "metrics" VALUES(1,1,2,1.5);
INSERT INTO "metrics" VALUES(1,1,3,1.0);
INSERT INTO "metrics" VALUES(1,2,1,0.01);
INSERT INTO "metrics" VALUES(1,2,2,0.01);
INSERT INTO "metrics" VALUES(1,2,3,0.01);
INSERT INTO "metrics" VALUES(1,3,1,1.0);
INSERT INTO "metrics" VALUES(1,3,2,NULL);
INSERT INTO "metrics" VALUES(1,3,3,1.0);
CREATE TABLE notes (
	note_id INTEGER NOT NULL /* number of the note, ascending */, 
	run INTEGER NOT NULL /* the run */, 
	time DOUBLE NOT NULL /* s since 1970, UTC */, 
	text TEXT NOT NULL /* what a person wrote */, 
	CONSTRAINT pk_notes PRIMARY KEY (note_id), 
	CONSTRAINT fk_notes_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "notes" VALUES(1,1,1.79600714970584893225e+09,'a note');
CREATE TABLE results (
	run INTEGER NOT NULL /* the run */, 
	step BIGINT /* optimiser step of the final loss */, 
	n_tokens BIGINT /* training tokens seen at the final loss */, 
	loss_nats DOUBLE /* final validation loss, nats a token; NULL until the run has ended */, 
	bits_per_byte DOUBLE /* final validation loss, bits a byte of text */, 
	annealed BOOLEAN NOT NULL /* the learning rate had come down to its end at the final loss */, 
	diverged BOOLEAN NOT NULL /* the run ended because its loss diverged */, 
	wall_s DOUBLE /* wall time, all attempts, s */, 
	train_wall_s DOUBLE /* wall time in training steps, all attempts, s */, 
	tokens_per_s DOUBLE /* throughput, tokens a second */, 
	device TEXT /* cpu, or the name of the accelerator, of the newest attempt */, 
	threads BIGINT /* threads of the newest attempt */, 
	n_attempts INTEGER NOT NULL /* attempts so far */, 
	last_step BIGINT /* newest step seen */, 
	last_tokens BIGINT /* tokens at last_step */, 
	last_seen_at DOUBLE /* time of the newest record, s since 1970, UTC */, 
	train_loss_nats DOUBLE /* newest training loss, nats a token */, 
	validation_loss_nats DOUBLE /* newest validation loss, nats a token */, 
	done TEXT /* JSON: DONE.json as the job wrote it */, 
	is_whole BOOLEAN NOT NULL /* the run has ended and everything of it is in the database */, 
	CONSTRAINT pk_results PRIMARY KEY (run), 
	CONSTRAINT fk_results_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "results" VALUES(1,3,3072,2.0,2.9,1,0,1.0,1.0,10.0,'cpu',1,1,3,3072,1.79600714921929407118e+09,1.0,2.0,'{"attempt":1,"bits_per_byte":2.9,"loss_nats":2.0,"n_tokens":3072,"outcome":"completed","reason":"","step":3,"time":1.0,"tokens_per_s":10.0,"train_wall_s":1.0,"wall_s":1.0}',1);
CREATE TABLE runs (
	run INTEGER NOT NULL /* number of the run in this database; joins metrics, attempts, evaluations */, 
	run_id TEXT NOT NULL /* first 16 hex digits of the SHA-256 of the spec */, 
	source TEXT NOT NULL /* run: trained here; import: points that somebody else measured */, 
	state TEXT NOT NULL /* planned, claimed, queued, running, completed, diverged, interrupted, failed, ... */, 
	state_reason TEXT /* why the run is in this state */, 
	state_at DOUBLE NOT NULL /* when it came into this state, s since 1970, UTC */, 
	method TEXT NOT NULL /* method of the model */, 
	gate TEXT NOT NULL /* what scales the stream after a sub-layer; none where nothing does */, 
	init TEXT /* initialisation */, 
	width INTEGER /* residual stream, channels */, 
	depth INTEGER /* layers */, 
	heads INTEGER /* attention heads */, 
	vocab_size INTEGER /* tokens in the vocabulary */, 
	context INTEGER /* tokens in a sequence */, 
	n_params BIGINT /* parameters without embedding and head */, 
	n_params_total BIGINT /* all parameters */, 
	n_params_embedding BIGINT /* parameters of the embedding */, 
	n_params_head BIGINT /* parameters of the head */, 
	n_tokens_planned BIGINT /* training tokens planned */, 
	n_steps_planned BIGINT /* optimiser steps planned */, 
	batch_tokens BIGINT /* tokens in an optimiser step */, 
	flops_per_token DOUBLE /* FLOPs a training token, forward and backward, under flop_convention */, 
	flop_convention TEXT /* how FLOPs are counted */, 
	flops_planned DOUBLE /* FLOPs planned */, 
	wall_s_planned DOUBLE /* seconds planned */, 
	memory_bytes_planned BIGINT /* peak memory planned, bytes */, 
	seed BIGINT /* root seed */, 
	precision TEXT /* fp32, bf16-mixed, ... */, 
	optimizer TEXT /* name of the optimiser */, 
	lr_peak DOUBLE /* peak learning rate */, 
	weight_decay DOUBLE /* weight decay */, 
	schedule TEXT /* name of the learning-rate schedule */, 
	data_fingerprint TEXT /* hash of corpus and tokenizer */, 
	parent_run_id TEXT /* trunk that this run branches from */, 
	parent_tokens BIGINT /* tokens of the trunk at the branch */, 
	spec TEXT NOT NULL /* JSON: everything that determines the result, defaults included */, 
	settings TEXT NOT NULL /* JSON: how the run is carried out */, 
	planned TEXT NOT NULL /* JSON: every number planned */, 
	submission_id TEXT /* the submission that claimed the run last */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, unique_tokens BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (run), 
	CONSTRAINT uq_runs_run_id UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'326d5bba9e92ed11','run','completed',NULL,1.79600714957295560843e+09,'gpt+','none','gpt2',64,2,4,256,128,5000,9000,NULL,NULL,3072,3,1024,30000.0,'6n',NULL,NULL,NULL,0,'fp32','adamw',0.01,NULL,'cosine','f',NULL,NULL,'{"data":{"fingerprint":"f","tokenizer":"t","vocab_size":256},"model":{"context":128,"depth":2,"gate":"none","heads":4,"init":"gpt2","method":"gpt+","vocab_size":256,"width":64},"parent":null,"training":{"batch_sequences":8,"context":128,"n_tokens":3072,"optimizer":{"lr_peak":0.01,"name":"adamw"},"precision":"fp32","schedule":{"name":"cosine"},"seed":0}}','{"label":"gpt+"}','{"flop_convention":"6n","flops_per_token":30000.0,"n_params_non_embedding":5000,"n_params_total":9000,"n_steps":3}','s1',1.79600714909963631634e+09,3072);
INSERT INTO "runs" VALUES(2,'8fcea9256dcbd778','run','claimed','submitted',1.79600714915385031703e+09,'gpt+','none','gpt2',64,2,4,256,128,5000,9000,NULL,NULL,3072,3,1024,30000.0,'6n',NULL,NULL,NULL,1,'fp32','adamw',0.01,NULL,'cosine','f',NULL,NULL,'{"data":{"fingerprint":"f","tokenizer":"t","vocab_size":256},"model":{"context":128,"depth":2,"gate":"none","heads":4,"init":"gpt2","method":"gpt+","vocab_size":256,"width":64},"parent":null,"training":{"batch_sequences":8,"context":128,"n_tokens":3072,"optimizer":{"lr_peak":0.01,"name":"adamw"},"precision":"fp32","schedule":{"name":"cosine"},"seed":1}}','{"label":"gpt+"}','{"flop_convention":"6n","flops_per_token":30000.0,"n_params_non_embedding":5000,"n_params_total":9000,"n_steps":3}','s1',1.79600714909975194932e+09,3072);
CREATE TABLE schema_version (
	version_num TEXT NOT NULL /* newest migration that was applied */, 
	CONSTRAINT pk_schema_version PRIMARY KEY (version_num)
);
INSERT INTO "schema_version" VALUES('0004');
CREATE TABLE submissions (
	submission_id TEXT NOT NULL /* name of the folder under jobs/ */, 
	executor TEXT NOT NULL /* local, slurm or debug */, 
	snapshot TEXT /* folder of the code snapshot */, 
	created_at DOUBLE NOT NULL /* s since 1970, UTC */, 
	CONSTRAINT pk_submissions PRIMARY KEY (submission_id)
);
INSERT INTO "submissions" VALUES('s1','local',NULL,1.79600714914616417885e+09);
CREATE TABLE tags (
	run INTEGER NOT NULL /* the run */, 
	tag TEXT NOT NULL /* one word of a person's choice */, 
	CONSTRAINT pk_tags PRIMARY KEY (run, tag), 
	CONSTRAINT fk_tags_run FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "tags" VALUES(1,'kept');
CREATE INDEX ix_events_run_id ON events (run_id);
CREATE INDEX ix_runs_state ON runs (state);
CREATE INDEX ix_runs_method ON runs (method);
CREATE INDEX ix_notes_run ON notes (run);
CREATE INDEX ix_experiment_runs_run ON experiment_runs (run);
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are only added'); END;
CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are only added'); END;
CREATE VIEW all_runs AS SELECT r.run_id, r.source, r.state, r.state_reason, r.method, r.gate, r.init, r.width, r.depth, r.heads, r.vocab_size,
       r.context, r.n_params, r.n_params_total, r.n_params_embedding, r.n_params_head, r.n_tokens_planned,
       r.unique_tokens, s.last_tokens AS n_tokens, r.batch_tokens, r.n_steps_planned, s.last_step AS step,
       r.flops_per_token, r.flops_planned, s.last_tokens * r.flops_per_token AS flops, s.loss_nats, s.bits_per_byte,
       s.validation_loss_nats, s.train_loss_nats, coalesce(s.annealed, false) AS annealed,
       coalesce(s.diverged, false) AS diverged, r.lr_peak, r.seed, r.precision, r.optimizer, r.weight_decay, r.schedule,
       r.parent_run_id, r.parent_tokens, s.tokens_per_s, s.wall_s, s.train_wall_s, r.wall_s_planned,
       r.memory_bytes_planned, s.device, s.threads, coalesce(s.n_attempts, 0) AS n_attempts, s.last_seen_at,
       r.created_at, r.submission_id
FROM runs r LEFT JOIN results s ON s.run = r.run;
CREATE VIEW final_losses AS SELECT r.run_id, e.name AS experiment, r.source, r.method, r.gate, x.label, r.init, x.size, x.budget, x.run_group,
       r.width, r.depth, r.heads, r.n_params, r.n_params_total, r.n_params_head, s.n_tokens,
       r.unique_tokens,
       CASE WHEN r.source = 'import' THEN coalesce(s.n_tokens * r.flops_per_token, r.flops_planned)
            ELSE s.n_tokens * r.flops_per_token END AS flops,
       CAST(6 AS DOUBLE PRECISION) * r.n_params * s.n_tokens AS flops_6n,
       s.loss_nats, s.bits_per_byte, r.seed, r.lr_peak, r.batch_tokens, r.precision,
       coalesce(s.annealed, false) AS annealed, r.state, coalesce(s.diverged, false) AS diverged, x.holdout,
       s.tokens_per_s, s.wall_s, s.train_wall_s, s.device, s.threads, s.step

FROM experiment_runs x
JOIN experiments e ON e.experiment_id = x.experiment_id AND e.revision_id = x.last_revision_id
JOIN runs r ON r.run = x.run
LEFT JOIN results s ON s.run = r.run;
CREATE VIEW progress AS SELECT r.run_id, e.name AS experiment, x.label, x.size, x.budget, r.state, r.state_reason,
       coalesce(s.last_step, 0) AS step, r.n_steps_planned, coalesce(s.last_tokens, 0) AS n_tokens, r.n_tokens_planned,
       s.train_loss_nats, coalesce(s.loss_nats, s.validation_loss_nats) AS validation_loss_nats, s.tokens_per_s,
       CASE WHEN r.state IN ('completed', 'diverged', 'cancelled') THEN 0
            WHEN s.tokens_per_s > 0 THEN (r.n_tokens_planned - coalesce(s.last_tokens, 0)) / s.tokens_per_s
            ELSE r.wall_s_planned END AS left_s,
       coalesce(s.n_attempts, 0) AS n_attempts, s.last_seen_at, s.wall_s, r.wall_s_planned

FROM experiment_runs x
JOIN experiments e ON e.experiment_id = x.experiment_id AND e.revision_id = x.last_revision_id
JOIN runs r ON r.run = x.run
LEFT JOIN results s ON s.run = r.run;
CREATE VIEW cost AS SELECT r.run_id, r.method, r.gate, r.state, r.n_params, r.wall_s_planned, s.wall_s, s.train_wall_s, s.tokens_per_s,
       r.n_tokens_planned, s.last_tokens AS n_tokens, r.flops_planned, s.last_tokens * r.flops_per_token AS flops,
       s.device, s.threads, coalesce(s.n_attempts, 0) AS n_attempts
FROM runs r LEFT JOIN results s ON s.run = r.run WHERE r.source = 'run';
CREATE VIEW waste AS SELECT r.run_id, r.method, a.attempt, a.outcome, a.reason, a.host, a.job_id, a.last_tokens, a.cut_tokens,
       CASE WHEN a.last_tokens > a.cut_tokens THEN a.last_tokens - a.cut_tokens ELSE 0 END AS tokens_lost,
       CASE WHEN a.last_tokens > a.cut_tokens AND a.tokens_per_s > 0
            THEN (a.last_tokens - a.cut_tokens) / a.tokens_per_s ELSE 0 END AS seconds_lost
FROM attempts a JOIN runs r ON r.run = a.run WHERE a.cut_step IS NOT NULL;
CREATE VIEW curves AS SELECT r.run_id, r.method, k.name AS metric, k.unit, m.step, m.step * r.batch_tokens AS n_tokens, m.value
FROM metrics m JOIN metric_keys k ON k.key = m.key JOIN runs r ON r.run = m.run;
CREATE VIEW layer_curves AS SELECT r.run_id, r.method, k.name AS metric, k.unit, m.layer, m.step, m.step * r.batch_tokens AS n_tokens, m.value
FROM layer_metrics m JOIN metric_keys k ON k.key = m.key JOIN runs r ON r.run = m.run;
COMMIT;
