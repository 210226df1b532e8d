//! Closing, where no verifier was asked: 12 comes before 10, and that before 7, 14 and 9.

pub const CLOSE: &str = "
                    | done | done@ | done! | done* | done- | done!- | reject | reject@ | reject! | reject* | reject-
no status           | 16   | 16    | 16    | 16    | 16    | 16     | 16     | 16      | 16      | 16      | 16
new                 | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
dependency open     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
dependency done     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
parent new          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
parent claimed      | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
original stands     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
original replaced   | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
dependency, parent  | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
a child open        | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
tied, not sticky    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
released            | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
swept               | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
taken away          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
replanned           | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
verifier            | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
workdir             | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
sticky              | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
sticky, tie unread  | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
sticky, blocked     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
bound               | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
bound to c2         | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
bound, replanned    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
unbound by sweep    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
unbound by hand     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
unbound while new   | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
tied to c1          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
tied to c2          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
tied to both        | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
bound, tied to c2   | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
c2 and blocked      | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
mine                | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
mine, beating       | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
mine again          | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
another's           | 12   | 7     | 12    | 12    | 12    | 12     | 12     | 7       | 12      | 12      | 12
another's now       | 12   | 7     | 12    | 12    | 12    | 12     | 12     | 7       | 12      | 12      | 12
reported            | done | done  | 12    | done  | done  | 12     | reject | reject  | 12      | reject  | reject
reported before     | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
another reported    | 12   | done  | 12    | 12    | 12    | 12     | 12     | reject  | 12      | 12      | 12
swept twice         | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
one left of 2       | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
same, reported      | done | done  | 12    | done  | done  | 12     | reject | reject  | 12      | reject  | reject
one in all          | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
no limit            | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
child open, silent  | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
child open          | 14   | 14    | 12    | 14    | 14    | 12     | 14     | 14      | 12      | 14      | 14
child unread        | 19   | 19    | 12    | 19    | 19    | 12     | 19     | 19      | 12      | 19      | 19
another's, child    | 12   | 14    | 12    | 12    | 12    | 12     | 12     | 14      | 12      | 12      | 12
parent went back    | done | done  | 12    | done  | done  | 12     | reject | reject  | 12      | reject  | reject
dependency reopened | done | done  | 12    | done  | done  | 12     | reject | reject  | 12      | reject  | reject
workdir, reported   | done | done  | 12    | done  | done  | 12     | reject | reject  | 12      | reject  | reject
to verify, silent   | 7    | 7     | 12    | 7     | 7     | 12     | 7      | 7       | 12      | 7       | 7
to verify           | 9    | 9     | 12    | 9     | 9     | 12     | reject | reject  | 12      | reject  | reject
to verify the 2nd   | 9    | 9     | 12    | 9     | 9     | 12     | reject | reject  | 12      | reject  | reject
to verify, child    | 14   | 14    | 12    | 14    | 14    | 12     | 14     | 14      | 12      | 14      | 14
another verifies    | 12   | 9     | 12    | 12    | 12    | 12     | 12     | reject  | 12      | 12      | 12
sticky, mine        | 7    | 7     | 12    | 10    | 10    | 12     | 7      | 7       | 12      | 10      | 10
sticky, reported    | done | done  | 12    | 10    | 10    | 12     | reject | reject  | 12      | 10      | 10
mine in c2          | 10   | 10    | 12    | 10    | 10    | 12     | 10     | 10      | 12      | 10      | 10
another's in c2     | 12   | 10    | 12    | 12    | 12    | 12     | 12     | 10      | 12      | 12      | 12
now tied to c2      | done | done  | 12    | 10    | 10    | 12     | reject | reject  | 12      | 10      | 10
c2, child, verifier | 10   | 10    | 12    | 10    | 10    | 12     | 10     | 10      | 12      | 10      | 10
done                | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
done and verified   | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
done, child open    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
done in c2          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
rejected            | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
cancelled           | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
cancelled at work   | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
cancelled clone     | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
killed              | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
superseded          | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
done, superseded    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
clone of a clone    | 6    | 6     | 6     | 6     | 6     | 6      | 6      | 6       | 6       | 6       | 6
";
