//! Closing, when the verifier has spoken of the newest report: it passed, failed, was skipped with a reason, or with none worth
//! the name (`unsaid`); or it was another verifier (`mistaken`), or an older report (`stale`). `gave up` rejects the task over a
//! failure, `too late` over one of an older report.

pub const VERIFY: &str = "
                    | passed | passed@ | passed- | failed | skipped | unsaid | mistaken | stale | gave up | too late
no status           | 16     | 16      | 16      | 16     | 16      | 16     | 16       | 16    | 16      | 16
new                 | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
dependency open     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
dependency done     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
parent new          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
parent claimed      | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
original stands     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
original replaced   | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
dependency, parent  | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
a child open        | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
tied, not sticky    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
released            | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
swept               | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
taken away          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
replanned           | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
verifier            | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
workdir             | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
sticky              | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
sticky, tie unread  | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
sticky, blocked     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
bound               | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
bound to c2         | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
bound, replanned    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
unbound by sweep    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
unbound by hand     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
unbound while new   | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
tied to c1          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
tied to c2          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
tied to both        | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
bound, tied to c2   | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
c2 and blocked      | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
mine                | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
mine, beating       | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
mine again          | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
another's           | 12     | 7       | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
another's now       | 12     | 7       | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
reported            | done   | done    | done    | done   | done    | done   | done     | 8     | reject  | 8
reported before     | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
another reported    | 12     | done    | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
swept twice         | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
one left of 2       | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
same, reported      | done   | done    | done    | done   | done    | done   | done     | 8     | reject  | 8
one in all          | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
no limit            | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
child open, silent  | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
child open          | 14     | 14      | 14      | 14     | 14      | 14     | 14       | 8     | 14      | 8
child unread        | 19     | 19      | 19      | 19     | 19      | 19     | 19       | 8     | 19      | 8
another's, child    | 12     | 14      | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
parent went back    | done   | done    | done    | done   | done    | done   | done     | 8     | reject  | 8
dependency reopened | done   | done    | done    | done   | done    | done   | done     | 8     | reject  | 8
workdir, reported   | done   | done    | done    | done   | done    | done   | done     | 8     | reject  | 8
to verify, silent   | 7      | 7       | 7       | 7      | 7       | 7      | 7        | 7     | 7       | 7
to verify           | passed | passed  | passed  | 9      | skipped | 13     | 9        | 8     | failed  | 8
to verify the 2nd   | passed | passed  | passed  | 9      | skipped | 13     | 9        | 8     | failed  | 8
to verify, child    | 14     | 14      | 14      | 14     | 14      | 14     | 14       | 8     | 14      | 8
another verifies    | 12     | passed  | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
sticky, mine        | 7      | 7       | 10      | 7      | 7       | 7      | 7        | 7     | 7       | 7
sticky, reported    | done   | done    | 10      | done   | done    | done   | done     | 8     | reject  | 8
mine in c2          | 10     | 10      | 10      | 10     | 10      | 10     | 10       | 10    | 10      | 10
another's in c2     | 12     | 10      | 12      | 12     | 12      | 12     | 12       | 12    | 12      | 12
now tied to c2      | done   | done    | 10      | done   | done    | done   | done     | 8     | reject  | 8
c2, child, verifier | 10     | 10      | 10      | 10     | 10      | 10     | 10       | 10    | 10      | 10
done                | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
done and verified   | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
done, child open    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
done in c2          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
rejected            | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
cancelled           | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
cancelled at work   | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
cancelled clone     | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
killed              | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
superseded          | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
done, superseded    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
clone of a clone    | 6      | 6       | 6       | 6      | 6       | 6      | 6        | 6     | 6       | 6
";
