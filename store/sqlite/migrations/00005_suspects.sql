-- For jobs that run alone: they stand in a lane of their own. Until now crashes were counted for ever, and nobody looked.

-- +goose Up
UPDATE jobs SET suspect = 0 WHERE suspect <> 0;

-- +goose Down
UPDATE jobs SET lane = CASE WHEN kind <> 'app' THEN 'task' WHEN state = 'ARCHIVING' THEN 'finish' WHEN state = 'SUBMITTING_JOB' THEN 'launch' ELSE 'prepare' END
    WHERE lane = 'alone';
