module github.com/pawl-jobs/pawl

go 1.26
