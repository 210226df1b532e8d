//! Creating many refs with one rename of packed-refs, under git's own lock of that file.
//!
//! Batches of pm exclude each other by the OS lock `pm/locks/packed`; its holder alone makes `packed.value`, the
//! prepared file that is linked as `packed-refs.lock`. Exclusion against pm's single appends is the caller's: it
//! holds the shards of all refs.
//!
//! What must never happen here: a line of packed-refs that was there before is lost or changed; a part of a batch is
//! visible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::prepared::{Prepared, heal};
use super::refs::{Refs, lock_of, read_loose};
use crate::id::{Oid, RefName};
use crate::store::lock::{self, Wait};
use crate::store::{Durability, Mode, Move, Publish, StoreError, durable};

/// What git writes at the top of a new file.
const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

impl Refs {
    /// Creates all these refs or none. The caller holds all their shards exclusively; no name may come twice.
    pub(super) fn publish(&self, refs: &[(RefName, Oid)], durability: Durability) -> Result<Publish, StoreError> {
        let mut new: Vec<&(RefName, Oid)> = refs.iter().collect();
        new.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(new.windows(2).all(|pair| pair[0].0 != pair[1].0), "a ref comes twice in a batch");
        for (name, _) in &new {
            self.check_name(name)?;
        }
        let [(first, _), ..] = new[..] else { return Ok(Publish::Done { shadowed: Vec::new() }) };

        let packed = self.open_to_rewrite(durability)?;
        // Everything is read under the lock.
        let (content, mut taken) = merge(&packed.old, &new);
        taken.extend(self.loose_among(&new)?.into_iter().map(|(name, _)| name.clone()));
        if !taken.is_empty() {
            return Ok(Publish::Taken { names: taken.into_iter().collect() });
        }
        packed.replace(&content, durability)?;

        let unknown = |source| StoreError::RecordedUnknown { name: first.clone(), source };
        durable::sync_dir_io(&self.common_dir, durability).map_err(unknown)?;
        let loose = self.loose_among(&new).map_err(|error| unknown(io::Error::other(error)))?;
        let mut shadowed = Vec::new();
        for (name, id) in loose {
            let path = self.path(name);
            let content = read_loose(&path).map_err(unknown)?;
            if content.is_some_and(|content| !matches!(self.parse(name, &content), Ok(found) if found == *id)) {
                shadowed.push(name.clone());
            }
        }
        Ok(Publish::Done { shadowed })
    }

    /// Moves these refs, each only from where it is expected. The caller holds all their shards exclusively.
    ///
    /// The new values are put into packed-refs with one rename; the loose files, which still hide them, are then removed
    /// one by one, each under git's lock of it and only if it holds what was expected. So a ref that git itself moves
    /// meanwhile stays where git put it, and whoever dies in between leaves the rest where they were.
    pub(super) fn move_many(&self, moves: &[Move], durability: Durability) -> Result<Vec<bool>, StoreError> {
        for (name, ..) in moves {
            self.check_name(name)?;
        }
        let packed = self.open_to_rewrite(durability)?;
        let mut known: BTreeMap<&[u8], Oid> = BTreeMap::new();
        for (name, lines) in records(body_of(&packed.old)) {
            let id =
                lines.split(|&byte| byte == b' ').next().and_then(|hex| std::str::from_utf8(hex).ok()?.parse().ok());
            known.extend(id.map(|id| (name, id)));
        }
        let mut moved = Vec::with_capacity(moves.len());
        let mut loose = Vec::new();
        let mut new = Vec::new();
        for (name, expected, to) in moves {
            let content = read_loose(&self.path(name)).map_err(durable::unreadable("read", &self.path(name)))?;
            let is_loose = content.is_some();
            let now = match content {
                Some(content) => self.parse(name, &content).ok(),
                None => known.get(name.as_str().as_bytes()).copied(),
            };
            moved.push(now == *expected);
            if now == *expected {
                new.push((name.clone(), *to));
                loose.extend(is_loose.then_some((moved.len() - 1, name, now, *to)));
            }
        }
        if new.is_empty() {
            return Ok(moved);
        }
        new.sort();
        let content = replaced(&packed.old, &new);
        packed.replace(&content, durability)?;
        let unknown = |source| StoreError::RecordedUnknown { name: new[0].0.clone(), source };
        durable::sync_dir_io(&self.common_dir, durability).map_err(unknown)?;
        let mut dirs = BTreeSet::new();
        for (place, name, was, to) in loose {
            moved[place] = self.remove_loose(name, was, to, durability)?;
            dirs.extend(self.path(name).parent().map(PathBuf::from));
        }
        for dir in dirs {
            // Where it is gone, as an empty one, so is everything that was in it.
            match durable::sync_dir_io(&dir, durability) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(unknown(error)),
                _ => {}
            }
        }
        Ok(moved)
    }

    /// Takes one ref out of packed-refs, durably, if it is there.
    pub(super) fn unpack(&self, name: &RefName, durability: Durability) -> Result<(), StoreError> {
        let packed = self.open_to_rewrite(durability)?;
        let content = without(&packed.old, name);
        if content.len() < packed.old.len() {
            packed.replace(&content, durability)?;
            durable::sync_dir(&self.common_dir, durability)?;
        }
        Ok(())
    }

    /// Locks packed-refs, against batches of pm and against git, and reads it.
    fn open_to_rewrite(&self, durability: Durability) -> Result<PackedRefs, StoreError> {
        let batch = lock::acquire_file(&self.batch_lock(), Mode::Exclusive, &mut Wait::new(self.patience))?;
        let target = self.packed_path();
        self.heal_packed()?;
        let mut prepared = Prepared::create(self.batch_value(), lock_of(&target))?
            .ok_or_else(|| durable::failed("create", &self.batch_value())(ErrorKind::AlreadyExists.into()))?;
        prepared.link(self.patience, durability)?;
        let old = match fs::read(&target) {
            Err(error) if error.kind() == ErrorKind::NotFound => HEADER.to_vec(),
            old => old.map_err(durable::unreadable("read", &target))?,
        };
        Ok(PackedRefs { prepared, target, old, _batch: batch })
    }

    /// Removes what a batch that died left behind; a batch that is alive is left alone. One look if there is none.
    pub(super) fn heal_batch(&self) -> Result<(), StoreError> {
        if fs::symlink_metadata(self.batch_value()).is_err() {
            return Ok(());
        }
        let path = self.batch_lock();
        match lock::acquire_file(&path, Mode::Exclusive, &mut Wait::new(std::time::Duration::ZERO)) {
            Ok(_batch) => self.heal_packed(),
            Err(StoreError::Locked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// As [`Refs::heal_batch`], for the holder of the batch lock.
    fn heal_packed(&self) -> Result<(), StoreError> {
        heal(&self.batch_value(), &lock_of(&self.packed_path()), |_| Ok(None))
    }

    fn batch_lock(&self) -> PathBuf {
        self.locks.join("packed")
    }

    fn batch_value(&self) -> PathBuf {
        self.locks.join("packed.value")
    }

    /// Those of `refs` that have a loose file, found by listing their directories once each.
    fn loose_among<'a>(&self, refs: &[&'a (RefName, Oid)]) -> Result<Vec<&'a (RefName, Oid)>, StoreError> {
        let mut dirs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for &row in refs {
            let Some((dir, file_name)) = row.0.as_str().rsplit_once('/') else { continue };
            let names = match dirs.get(dir) {
                Some(names) => names,
                None => {
                    let path = self.common_dir.join(dir);
                    let names = file_names(&path).map_err(durable::unreadable("list", &path))?;
                    dirs.entry(dir).or_insert(names)
                }
            };
            if names.contains(file_name) {
                found.push(row);
            }
        }
        Ok(found)
    }
}

/// packed-refs, locked to be replaced. Dropped, it stays as it is.
struct PackedRefs {
    // The lock of git is given back before that of pm.
    prepared: Prepared,
    target: PathBuf,
    /// What is in it.
    old: Vec<u8>,
    _batch: fs::File,
}

impl PackedRefs {
    fn replace(mut self, content: &[u8], durability: Durability) -> Result<(), StoreError> {
        self.prepared.write(content, durability)?;
        self.prepared.sync(durability)?;
        self.prepared.rename_over(&self.target)
    }
}

/// The names of the files in a directory, which need not exist.
fn file_names(dir: &std::path::Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(BTreeSet::new());
        }
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Merges new refs into the text of a packed-refs file, whose lines stay as they are, and lists the refs that are
/// there already. `new` is sorted.
fn merge(old: &[u8], new: &[&(RefName, Oid)]) -> (Vec<u8>, BTreeSet<RefName>) {
    let body = body_of(old);
    let header = &old[..old.len() - body.len()];
    let sorted = header.trim_ascii_end().split(|&byte| byte == b' ').any(|trait_name| trait_name == b"sorted");
    let mut records = records(body);
    if !sorted {
        records.sort_by(|a, b| a.0.cmp(b.0));
    }
    let mut content = Vec::with_capacity(old.len() + new.len() * 100);
    content.extend_from_slice(header);
    let mut taken = BTreeSet::new();
    let mut new = new.iter().peekable();
    for (name, lines) in records {
        while let Some((new_name, id)) = new.next_if(|(new_name, _)| new_name.as_str().as_bytes() <= name) {
            if new_name.as_str().as_bytes() == name {
                taken.insert(new_name.clone());
            } else {
                push_line(&mut content, new_name, *id);
            }
        }
        content.extend_from_slice(lines);
        if !lines.ends_with(b"\n") {
            content.push(b'\n');
        }
    }
    for (name, id) in new {
        push_line(&mut content, name, *id);
    }
    (content, taken)
}

/// The text of a packed-refs file without one ref; all other lines stay as they are.
fn without(old: &[u8], name: &RefName) -> Vec<u8> {
    let body = body_of(old);
    let mut content = old[..old.len() - body.len()].to_vec();
    for (other, lines) in records(body) {
        if other != name.as_str().as_bytes() {
            content.extend_from_slice(lines);
        }
    }
    content
}

/// The text of a packed-refs file with refs put in, or put in the place of what is there. `new` is sorted.
fn replaced(old: &[u8], new: &[(RefName, Oid)]) -> Vec<u8> {
    let body = body_of(old);
    let names: BTreeSet<&[u8]> = new.iter().map(|(name, _)| name.as_str().as_bytes()).collect();
    let mut kept = old[..old.len() - body.len()].to_vec();
    for (name, lines) in records(body) {
        if !names.contains(name) {
            kept.extend_from_slice(lines);
        }
    }
    merge(&kept, &new.iter().collect::<Vec<_>>()).0
}

/// What is below the header of a packed-refs file.
fn body_of(content: &[u8]) -> &[u8] {
    match content {
        [b'#', ..] => &content[line_end(content, 0)..],
        _ => content,
    }
}

fn push_line(content: &mut Vec<u8>, name: &RefName, id: Oid) {
    content.extend_from_slice(id.to_string().as_bytes());
    content.push(b' ');
    content.extend_from_slice(name.as_str().as_bytes());
    content.push(b'\n');
}

/// Splits the body of packed-refs into the name of each ref and its lines: its own, and the `^` line of a tag.
fn records(body: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut records: Vec<(&[u8], &[u8])> = Vec::new();
    let mut start = 0;
    while start < body.len() {
        let mut end = line_end(body, start);
        let line = body[start..end].trim_ascii_end();
        let name = line.iter().position(|&byte| byte == b' ').map_or(&line[..0], |space| &line[space + 1..]);
        while body.get(end) == Some(&b'^') {
            end = line_end(body, end);
        }
        records.push((name, &body[start..end]));
        start = end;
    }
    records
}

fn line_end(body: &[u8], start: usize) -> usize {
    body[start..].iter().position(|&byte| byte == b'\n').map_or(body.len(), |len| start + len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: &str, expected: Result<&str, &[&str]>) {
        let id: Oid = "1111111111111111111111111111111111111111".parse().expect("an id");
        let new = ["refs/pm/b", "refs/pm/d"].map(|name| (RefName::from_full(name.to_owned()), id));
        let (content, taken) = merge(old.as_bytes(), &new.iter().collect::<Vec<_>>());
        let content =
            String::from_utf8(content).expect("text").replace("1111111111111111111111111111111111111111", "1");
        match expected {
            Ok(expected) => assert_eq!((content.as_str(), taken.len()), (expected, 0)),
            Err(names) => assert_eq!(taken.iter().map(RefName::as_str).collect::<Vec<_>>(), names),
        }
    }

    #[test]
    fn old_lines_stay_as_they_are_and_new_ones_go_between_them() {
        check("", Ok("1 refs/pm/b\n1 refs/pm/d\n"));
        check(
            "# h sorted \n2 refs/pm/a\n2 refs/pm/c\n",
            Ok("# h sorted \n2 refs/pm/a\n1 refs/pm/b\n2 refs/pm/c\n1 refs/pm/d\n"),
        );
        check(
            "# h sorted \n2 refs/pm/a\n^3\n2 refs/pm/z",
            Ok("# h sorted \n2 refs/pm/a\n^3\n1 refs/pm/b\n1 refs/pm/d\n2 refs/pm/z\n"),
        );
    }

    #[test]
    fn a_line_that_is_replaced_goes_where_it_belongs_and_the_others_stay() {
        let id: Oid = "1111111111111111111111111111111111111111".parse().expect("an id");
        let new = ["refs/pm/b", "refs/pm/d"].map(|name| (RefName::from_full(name.to_owned()), id));
        let old = "# h sorted \n2 refs/pm/a\n^3\n2 refs/pm/b\n^4\n2 refs/pm/c\n";
        let content = String::from_utf8(replaced(old.as_bytes(), &new)).expect("text").replace(&id.to_string(), "1");
        assert_eq!(content, "# h sorted \n2 refs/pm/a\n^3\n1 refs/pm/b\n2 refs/pm/c\n1 refs/pm/d\n");
    }

    #[test]
    fn a_file_that_does_not_claim_to_be_sorted_is_sorted() {
        check(
            "# h \n2 refs/pm/c\n^3\n2 refs/pm/a\n",
            Ok("# h \n2 refs/pm/a\n1 refs/pm/b\n2 refs/pm/c\n^3\n1 refs/pm/d\n"),
        );
        check("2 refs/pm/d\n2 refs/pm/b\n", Err(&["refs/pm/b", "refs/pm/d"]));
    }
}
