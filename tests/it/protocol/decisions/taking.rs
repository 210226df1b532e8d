//! Taking a task, and keeping it. Only a claim of a sticky task asks what the tied ones are bound to.

pub const TAKE: &str = "
                    | claim | claim* | claim- | beat | beat@ | beat! | beat* | beat- | beat@- | beat!-
no status           | 16    | 16     | 16     | 16   | 16    | 16    | 16    | 16    | 16     | 16
new                 | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
dependency open     | 11    | 11     | 11     | 6    | 6     | 6     | 6     | 6     | 6      | 6
dependency done     | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
parent new          | 15    | 15     | 15     | 6    | 6     | 6     | 6     | 6     | 6      | 6
parent claimed      | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
original stands     | 11    | 11     | 11     | 6    | 6     | 6     | 6     | 6     | 6      | 6
original replaced   | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
dependency, parent  | 11    | 11     | 11     | 6    | 6     | 6     | 6     | 6     | 6      | 6
a child open        | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
tied, not sticky    | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
released            | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
swept               | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
taken away          | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
replanned           | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
verifier            | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
workdir             | claim | claim  | claim  | 6    | 6     | 6     | 6     | 6     | 6      | 6
sticky              | claim | claim  | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
sticky, tie unread  | 19    | 19     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
sticky, blocked     | 11    | 11     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
bound               | claim | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
bound to c2         | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
bound, replanned    | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
unbound by sweep    | claim | claim  | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
unbound by hand     | claim | claim  | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
unbound while new   | claim | claim  | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
tied to c1          | claim | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
tied to c2          | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
tied to both        | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
bound, tied to c2   | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
c2 and blocked      | 10    | 10     | 10     | 6    | 6     | 6     | 6     | 6     | 6      | 6
mine                | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
mine, beating       | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
mine again          | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
another's           | 6     | 6      | 6      | 12   | beat  | 12    | 12    | 12    | beat   | 12
another's now       | 6     | 6      | 6      | 12   | beat  | 12    | 12    | 12    | beat   | 12
reported            | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
reported before     | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
another reported    | 6     | 6      | 6      | 12   | beat  | 12    | 12    | 12    | beat   | 12
swept twice         | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
one left of 2       | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
same, reported      | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
one in all          | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
no limit            | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
child open, silent  | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
child open          | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
child unread        | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
another's, child    | 6     | 6      | 6      | 12   | beat  | 12    | 12    | 12    | beat   | 12
parent went back    | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
dependency reopened | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
workdir, reported   | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
to verify, silent   | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
to verify           | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
to verify the 2nd   | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
to verify, child    | 6     | 6      | 6      | beat | beat  | 12    | beat  | beat  | beat   | 12
another verifies    | 6     | 6      | 6      | 12   | beat  | 12    | 12    | 12    | beat   | 12
sticky, mine        | 6     | 6      | 6      | beat | beat  | 12    | 10    | 10    | 10     | 12
sticky, reported    | 6     | 6      | 6      | beat | beat  | 12    | 10    | 10    | 10     | 12
mine in c2          | 6     | 6      | 6      | 10   | 10    | 12    | 10    | 10    | 10     | 12
another's in c2     | 6     | 6      | 6      | 12   | 10    | 12    | 12    | 12    | 10     | 12
now tied to c2      | 6     | 6      | 6      | beat | beat  | 12    | 10    | 10    | 10     | 12
c2, child, verifier | 6     | 6      | 6      | 10   | 10    | 12    | 10    | 10    | 10     | 12
done                | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
done and verified   | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
done, child open    | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
done in c2          | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
rejected            | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
cancelled           | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
cancelled at work   | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
cancelled clone     | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
killed              | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
superseded          | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
done, superseded    | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
clone of a clone    | 6     | 6      | 6      | 6    | 6     | 6     | 6     | 6     | 6      | 6
";
