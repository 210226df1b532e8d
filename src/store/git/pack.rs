//! Writing one pack of commits and its index (gitformat-pack(5): pack version 2, index version 2).
//!
//! Batches of thousands of commits go in here: as loose objects they would take twenty times as long and a disk
//! block each. Nothing is a delta, since records of different tasks have little in common.
//!
//! What must never happen here: the index, which makes a pack visible, appears before the whole pack is in place and
//! synced.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::gix_failed;
use super::objects::Objects;
use super::stored::wrap;
use crate::id::Oid;
use crate::store::{Commit, Durability, Pack, StoreError, durable};

/// The type of a commit in a pack entry's header.
const OBJ_COMMIT: u8 = 1;
/// An index offset with this bit set is a position in the table of 64-bit offsets.
const LARGE_OFFSET: u32 = 1 << 31;

/// A pack being written below `objects/pack`, under temporary names that `git gc` knows to sweep.
pub(super) struct PackWriter<'a> {
    objects: &'a Objects,
    durability: Durability,
    dir: PathBuf,
    temporary: Temporary,
    out: BufWriter<File>,
    offset: u64,
    entries: Vec<Entry>,
    seen: HashSet<Oid>,
    /// Reused from entry to entry.
    content: Vec<u8>,
    packed: Vec<u8>,
}

struct Entry {
    id: Oid,
    crc: u32,
    offset: u64,
}

impl<'a> PackWriter<'a> {
    pub(super) fn begin(objects: &'a Objects, durability: Durability) -> Result<PackWriter<'a>, StoreError> {
        let dir = objects.dir().join("pack");
        durable::create_dir_all(&dir, durability)?;
        let (temporary, file) = Temporary::create(&dir, "pack")?;
        let mut out = BufWriter::with_capacity(1 << 18, file);
        // The number of entries is filled in at the end.
        out.write_all(b"PACK\0\0\0\x02\0\0\0\0").map_err(durable::failed("write", &temporary.path))?;
        Ok(PackWriter {
            objects,
            durability,
            dir,
            temporary,
            out,
            offset: 12,
            entries: Vec::new(),
            seen: HashSet::new(),
            content: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Completes the pack file: count, checksum. Returns the checksum.
    fn complete(&mut self) -> Result<gix::ObjectId, StoreError> {
        let path = &self.temporary.path;
        let count = u32::try_from(self.entries.len()).map_err(|_| durable::failed("write", path)(too_large()))?;
        self.out.flush().map_err(durable::failed("write", path))?;
        let file = self.out.get_mut();
        let mut patch = || -> io::Result<gix::ObjectId> {
            file.seek(SeekFrom::Start(8))?;
            file.write_all(&count.to_be_bytes())?;
            file.seek(SeekFrom::Start(0))?;
            let mut hasher = gix::hash::hasher(self.objects.hash());
            let mut chunk = vec![0; 1 << 18];
            loop {
                match file.read(&mut chunk)? {
                    0 => break,
                    read => hasher.update(&chunk[..read]),
                }
            }
            let checksum = hasher.try_finalize().map_err(|error| io::Error::other(error.to_string()))?;
            file.write_all(checksum.as_bytes())?;
            Ok(checksum)
        };
        let checksum = patch().map_err(durable::failed("write", path))?;
        durable::sync_file(file, path, self.durability)?;
        Ok(checksum)
    }
}

impl Pack for PackWriter<'_> {
    fn add(&mut self, commit: &Commit) -> Result<Oid, StoreError> {
        self.content.clear();
        self.objects.encode(commit, &mut self.content)?;
        let id = self.objects.hash_of(gix::objs::Kind::Commit, &self.content)?;
        if !self.seen.insert(id) {
            return Ok(id);
        }
        self.packed.clear();
        push_header(&mut self.packed, self.content.len());
        // Ids and hashes hardly shrink: compressed, a batch would be two thirds of its size, and every later listing
        // would pay for it. `git gc` compresses what it repacks.
        wrap(&self.content, &mut self.packed);
        self.out.write_all(&self.packed).map_err(durable::failed("write", &self.temporary.path))?;
        self.entries.push(Entry { id, crc: crc32fast::hash(&self.packed), offset: self.offset });
        self.offset += self.packed.len() as u64;
        Ok(id)
    }

    fn finish(mut self: Box<Self>) -> Result<(), StoreError> {
        // Loose objects too, such as the empty tree that all these commits share.
        self.objects.persist()?;
        if self.entries.is_empty() {
            return Ok(());
        }
        let checksum = self.complete()?;
        self.entries.sort_by_key(|entry| entry.id);
        let index = index_of(&self.entries, &checksum)
            .map_err(|error| gix_failed("hash the index of", &self.temporary.path, &error))?;
        let (index_temporary, mut index_file) = Temporary::create(&self.dir, "idx")?;
        index_file.write_all(&index).map_err(durable::failed("write", &index_temporary.path))?;
        durable::sync_file(&index_file, &index_temporary.path, self.durability)?;
        let name = format!("pack-{checksum}");
        let files = ["pack", "idx"].map(|suffix| self.dir.join(format!("{name}.{suffix}")));
        // Until its refs are published nothing refers to the pack, and `git repack -ad` would delete it.
        let keep = self.dir.join(format!("{name}{KEEP}"));
        let keep_file = durable::write_new_file(&keep, KEEP_CONTENT, 0o644)?;
        durable::sync_file(&keep_file, &keep, self.durability)?;
        self.objects.note_keep(keep);
        self.temporary.rename(&files[0])?;
        index_temporary.rename(&files[1])?;
        durable::sync_dir(&self.dir, self.durability)?;
        self.objects.note_pack(files);
        Ok(())
    }
}

/// The content of the index of a pack with this checksum. `entries` are sorted by id.
fn index_of(entries: &[Entry], checksum: &gix::ObjectId) -> Result<Vec<u8>, gix::Error> {
    let mut index = Vec::with_capacity(1100 + entries.len() * 44);
    index.extend_from_slice(b"\xfftOc\0\0\0\x02");
    let mut fanout = [0u32; 256];
    for entry in entries {
        fanout[usize::from(entry.id.as_bytes()[0])] += 1;
    }
    let mut sum = 0;
    for count in fanout {
        sum += count;
        index.extend_from_slice(&u32::to_be_bytes(sum));
    }
    for entry in entries {
        index.extend_from_slice(entry.id.as_bytes());
    }
    for entry in entries {
        index.extend_from_slice(&entry.crc.to_be_bytes());
    }
    let mut large = Vec::new();
    for entry in entries {
        let offset = match u32::try_from(entry.offset) {
            Ok(offset) if offset < LARGE_OFFSET => offset,
            _ => {
                large.push(entry.offset);
                LARGE_OFFSET | (large.len() - 1) as u32
            }
        };
        index.extend_from_slice(&offset.to_be_bytes());
    }
    for offset in large {
        index.extend_from_slice(&offset.to_be_bytes());
    }
    index.extend_from_slice(checksum.as_bytes());
    let mut hasher = gix::hash::hasher(checksum.kind());
    hasher.update(&index);
    index.extend_from_slice(hasher.try_finalize()?.as_bytes());
    Ok(index)
}

/// A temporary file that is removed unless it is renamed.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn create(dir: &Path, kind: &str) -> Result<(Temporary, File), StoreError> {
        let unique = getrandom::u64()
            .map_err(|error| durable::failed("create a temporary file in", dir)(io::Error::other(error.to_string())))?;
        let path = dir.join(format!("tmp_{kind}_{unique:016x}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .map_err(durable::failed("create", &path))?;
        Ok((Temporary { path }, file))
    }

    fn rename(&self, to: &Path) -> Result<(), StoreError> {
        fs::rename(&self.path, to).map_err(durable::failed("create", to))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing under this name; git gc sweeps what stays.
        let _swept_by_gc = durable::remove_if_there(&self.path);
    }
}

/// Appends the header of a pack entry: type and inflated size, seven bits a byte but four in the first.
fn push_header(out: &mut Vec<u8>, size: usize) {
    let mut byte = OBJ_COMMIT << 4 | (size & 0x0f) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

/// How the name of the file ends that makes git leave a pack alone.
pub(super) const KEEP: &str = ".keep";

/// What pm writes into it, to know its own again.
pub(super) const KEEP_CONTENT: &[u8] = b"pm: being published\n";

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "a pack holds at most 2^32 - 1 objects")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_is_a_zlib_stream() {
        for length in [0, 1, 65_535, 65_536, 200_000] {
            let content: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let (mut wrapped, mut inflated) = (Vec::new(), vec![0; length]);
            wrap(&content, &mut wrapped);
            let (status, read, written) =
                gix::zlib::Inflate::default().once(&wrapped, &mut inflated).expect("a zlib stream");
            assert_eq!((status, read, written), (gix::zlib::Status::StreamEnd, wrapped.len(), length));
            assert_eq!(inflated, content);
        }
    }

    #[test]
    fn offsets_from_two_gigabytes_on_are_in_a_table_of_their_own() {
        let entry = |first: u8, offset| Entry { id: Oid::from_bytes(&[first; 20]).expect("an id"), crc: 0, offset };
        let entries = [entry(1, 12), entry(2, 1 << 31), entry(3, (1 << 31) - 1), entry(4, 1 << 40)];
        let index = index_of(&entries, &gix::ObjectId::null(gix::hash::Kind::Sha1)).expect("hashed");
        let offsets = &index[8 + 4 * 256 + 4 * 20 + 4 * 4..index.len() - 40];
        let expected: [&[u8]; 6] = [
            &[0, 0, 0, 12],
            &[0x80, 0, 0, 0],
            &[0x7f, 0xff, 0xff, 0xff],
            &[0x80, 0, 0, 1],
            &[0, 0, 0, 0, 0x80, 0, 0, 0],
            &[0, 0, 1, 0, 0, 0, 0, 0],
        ];
        assert_eq!(offsets, expected.concat());
    }
}
