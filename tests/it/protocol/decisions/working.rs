//! Reporting asks for the context of the claim; giving back does not.

pub const WORK: &str = "
                    | report | report@ | report! | report* | report- | release | release@ | release!
no status           | 16     | 16      | 16      | 16      | 16      | 16      | 16       | 16
new                 | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
dependency open     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
dependency done     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
parent new          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
parent claimed      | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
original stands     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
original replaced   | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
dependency, parent  | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
a child open        | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
tied, not sticky    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
released            | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
swept               | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
taken away          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
replanned           | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
verifier            | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
workdir             | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
sticky              | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
sticky, tie unread  | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
sticky, blocked     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
bound               | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
bound to c2         | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
bound, replanned    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
unbound by sweep    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
unbound by hand     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
unbound while new   | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
tied to c1          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
tied to c2          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
tied to both        | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
bound, tied to c2   | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
c2 and blocked      | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
mine                | report | report  | 12      | report  | report  | freed   | freed    | 12
mine, beating       | report | report  | 12      | report  | report  | freed   | freed    | 12
mine again          | report | report  | 12      | report  | report  | freed   | freed    | 12
another's           | 12     | report  | 12      | 12      | 12      | 12      | freed    | 12
another's now       | 12     | report  | 12      | 12      | 12      | 12      | freed    | 12
reported            | report | report  | 12      | report  | report  | freed   | freed    | 12
reported before     | report | report  | 12      | report  | report  | freed   | freed    | 12
another reported    | 12     | report  | 12      | 12      | 12      | 12      | freed    | 12
swept twice         | report | report  | 12      | report  | report  | freed   | freed    | 12
one left of 2       | report | report  | 12      | report  | report  | freed   | freed    | 12
same, reported      | report | report  | 12      | report  | report  | freed   | freed    | 12
one in all          | report | report  | 12      | report  | report  | freed   | freed    | 12
no limit            | report | report  | 12      | report  | report  | freed   | freed    | 12
child open, silent  | report | report  | 12      | report  | report  | freed   | freed    | 12
child open          | report | report  | 12      | report  | report  | freed   | freed    | 12
child unread        | report | report  | 12      | report  | report  | freed   | freed    | 12
another's, child    | 12     | report  | 12      | 12      | 12      | 12      | freed    | 12
parent went back    | report | report  | 12      | report  | report  | freed   | freed    | 12
dependency reopened | report | report  | 12      | report  | report  | freed   | freed    | 12
workdir, reported   | report | report  | 12      | report  | report  | freed   | freed    | 12
to verify, silent   | report | report  | 12      | report  | report  | freed   | freed    | 12
to verify           | report | report  | 12      | report  | report  | freed   | freed    | 12
to verify the 2nd   | report | report  | 12      | report  | report  | freed   | freed    | 12
to verify, child    | report | report  | 12      | report  | report  | freed   | freed    | 12
another verifies    | 12     | report  | 12      | 12      | 12      | 12      | freed    | 12
sticky, mine        | report | report  | 12      | 10      | 10      | freed   | freed    | 12
sticky, reported    | report | report  | 12      | 10      | 10      | freed   | freed    | 12
mine in c2          | 10     | 10      | 12      | 10      | 10      | freed   | freed    | 12
another's in c2     | 12     | 10      | 12      | 12      | 12      | 12      | freed    | 12
now tied to c2      | report | report  | 12      | 10      | 10      | freed   | freed    | 12
c2, child, verifier | 10     | 10      | 12      | 10      | 10      | freed   | freed    | 12
done                | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
done and verified   | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
done, child open    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
done in c2          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
rejected            | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
cancelled           | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
cancelled at work   | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
cancelled clone     | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
killed              | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
superseded          | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
done, superseded    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
clone of a clone    | 6      | 6       | 6       | 6       | 6       | 6       | 6        | 6
";
