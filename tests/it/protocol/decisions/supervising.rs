//! Taking a task away from its holder, or from its context.

pub const SUPERVISE: &str = "
                    | sweep   | sweep! | sweep/1 | sweep/2 | reclaim | reclaim@ | reclaim!
no status           | 16      | 16     | 16      | 16      | 16      | 16       | 16
new                 | 6       | 6      | 6       | 6       | 6       | 6        | 6
dependency open     | 6       | 6      | 6       | 6       | 6       | 6        | 6
dependency done     | 6       | 6      | 6       | 6       | 6       | 6        | 6
parent new          | 6       | 6      | 6       | 6       | 6       | 6        | 6
parent claimed      | 6       | 6      | 6       | 6       | 6       | 6        | 6
original stands     | 6       | 6      | 6       | 6       | 6       | 6        | 6
original replaced   | 6       | 6      | 6       | 6       | 6       | 6        | 6
dependency, parent  | 6       | 6      | 6       | 6       | 6       | 6        | 6
a child open        | 6       | 6      | 6       | 6       | 6       | 6        | 6
tied, not sticky    | 6       | 6      | 6       | 6       | 6       | 6        | 6
released            | 6       | 6      | 6       | 6       | 6       | 6        | 6
swept               | 6       | 6      | 6       | 6       | 6       | 6        | 6
taken away          | 6       | 6      | 6       | 6       | 6       | 6        | 6
replanned           | 6       | 6      | 6       | 6       | 6       | 6        | 6
verifier            | 6       | 6      | 6       | 6       | 6       | 6        | 6
workdir             | 6       | 6      | 6       | 6       | 6       | 6        | 6
sticky              | 6       | 6      | 6       | 6       | 6       | 6        | 6
sticky, tie unread  | 6       | 6      | 6       | 6       | 6       | 6        | 6
sticky, blocked     | 6       | 6      | 6       | 6       | 6       | 6        | 6
bound               | unbound | 8      | unbound | unbound | unbound | 8        | 8
bound to c2         | unbound | 8      | unbound | unbound | unbound | 8        | 8
bound, replanned    | unbound | 8      | unbound | unbound | unbound | 8        | 8
unbound by sweep    | 6       | 6      | 6       | 6       | 6       | 6        | 6
unbound by hand     | 6       | 6      | 6       | 6       | 6       | 6        | 6
unbound while new   | 6       | 6      | 6       | 6       | 6       | 6        | 6
tied to c1          | 6       | 6      | 6       | 6       | 6       | 6        | 6
tied to c2          | 6       | 6      | 6       | 6       | 6       | 6        | 6
tied to both        | 6       | 6      | 6       | 6       | 6       | 6        | 6
bound, tied to c2   | unbound | 8      | unbound | unbound | unbound | 8        | 8
c2 and blocked      | 6       | 6      | 6       | 6       | 6       | 6        | 6
mine                | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
mine, beating       | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
mine again          | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another's           | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another's now       | swept 2 | 8      | kill 2  | kill 2  | taken   | taken    | 8
reported            | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
reported before     | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another reported    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
swept twice         | swept 3 | 8      | kill 3  | kill 3  | taken   | taken    | 8
one left of 2       | kill 2  | 8      | kill 2  | kill 2  | taken   | taken    | 8
same, reported      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
one in all          | kill 1  | 8      | kill 1  | kill 1  | taken   | taken    | 8
no limit            | swept 2 | 8      | swept 2 | swept 2 | taken   | taken    | 8
child open, silent  | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
child open          | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
child unread        | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
another's, child    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
parent went back    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
dependency reopened | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
workdir, reported   | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
to verify, silent   | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
to verify           | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
to verify the 2nd   | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
to verify, child    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
another verifies    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
sticky, mine        | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
sticky, reported    | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
mine in c2          | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
another's in c2     | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
now tied to c2      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
c2, child, verifier | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
done                | 6       | 6      | 6       | 6       | 6       | 6        | 6
done and verified   | 6       | 6      | 6       | 6       | 6       | 6        | 6
done, child open    | 6       | 6      | 6       | 6       | 6       | 6        | 6
done in c2          | 6       | 6      | 6       | 6       | 6       | 6        | 6
rejected            | 6       | 6      | 6       | 6       | 6       | 6        | 6
cancelled           | 6       | 6      | 6       | 6       | 6       | 6        | 6
cancelled at work   | 6       | 6      | 6       | 6       | 6       | 6        | 6
cancelled clone     | 6       | 6      | 6       | 6       | 6       | 6        | 6
killed              | 6       | 6      | 6       | 6       | 6       | 6        | 6
superseded          | 6       | 6      | 6       | 6       | 6       | 6        | 6
done, superseded    | 6       | 6      | 6       | 6       | 6       | 6        | 6
clone of a clone    | 6       | 6      | 6       | 6       | 6       | 6        | 6
";
