//! Calling a task off, opening it again, and putting another one in its place.

pub const PLAN: &str = "
                    | cancel    | replan   | supersede
no status           | 16        | 16       | 16
new                 | cancelled | 6        | replaced
dependency open     | cancelled | 6        | replaced
dependency done     | cancelled | 6        | replaced
parent new          | cancelled | 6        | replaced
parent claimed      | cancelled | 6        | replaced
original stands     | cancelled | 6        | replaced
original replaced   | cancelled | 6        | replaced
dependency, parent  | cancelled | 6        | replaced
a child open        | cancelled | 6        | replaced
tied, not sticky    | cancelled | 6        | replaced
released            | cancelled | 6        | replaced
swept               | cancelled | 6        | replaced
taken away          | cancelled | 6        | replaced
replanned           | cancelled | 6        | replaced
verifier            | cancelled | 6        | replaced
workdir             | cancelled | 6        | replaced
sticky              | cancelled | 6        | replaced
sticky, tie unread  | cancelled | 6        | replaced
sticky, blocked     | cancelled | 6        | replaced
bound               | cancelled | 6        | replaced
bound to c2         | cancelled | 6        | replaced
bound, replanned    | cancelled | 6        | replaced
unbound by sweep    | cancelled | 6        | replaced
unbound by hand     | cancelled | 6        | replaced
unbound while new   | cancelled | 6        | replaced
tied to c1          | cancelled | 6        | replaced
tied to c2          | cancelled | 6        | replaced
tied to both        | cancelled | 6        | replaced
bound, tied to c2   | cancelled | 6        | replaced
c2 and blocked      | cancelled | 6        | replaced
mine                | cancelled | 6        | 6
mine, beating       | cancelled | 6        | 6
mine again          | cancelled | 6        | 6
another's           | cancelled | 6        | 6
another's now       | cancelled | 6        | 6
reported            | cancelled | 6        | 6
reported before     | cancelled | 6        | 6
another reported    | cancelled | 6        | 6
swept twice         | cancelled | 6        | 6
one left of 2       | cancelled | 6        | 6
same, reported      | cancelled | 6        | 6
one in all          | cancelled | 6        | 6
no limit            | cancelled | 6        | 6
child open, silent  | cancelled | 6        | 6
child open          | cancelled | 6        | 6
child unread        | cancelled | 6        | 6
another's, child    | cancelled | 6        | 6
parent went back    | cancelled | 6        | 6
dependency reopened | cancelled | 6        | 6
workdir, reported   | cancelled | 6        | 6
to verify, silent   | cancelled | 6        | 6
to verify           | cancelled | 6        | 6
to verify the 2nd   | cancelled | 6        | 6
to verify, child    | cancelled | 6        | 6
another verifies    | cancelled | 6        | 6
sticky, mine        | cancelled | 6        | 6
sticky, reported    | cancelled | 6        | 6
mine in c2          | cancelled | 6        | 6
another's in c2     | cancelled | 6        | 6
now tied to c2      | cancelled | 6        | 6
c2, child, verifier | cancelled | 6        | 6
done                | 6         | reopened | replaced
done and verified   | 6         | reopened | replaced
done, child open    | 6         | reopened | replaced
done in c2          | 6         | reopened | replaced
rejected            | 6         | reopened | replaced
cancelled           | 6         | reopened | replaced
cancelled at work   | 6         | reopened | replaced
cancelled clone     | 6         | reopened | replaced
killed              | 6         | reopened | replaced
superseded          | 6         | 6        | 6
done, superseded    | 6         | 6        | 6
clone of a clone    | 6         | 6        | 6
";
