//! The model: what a file system with one user does, in memory.

use std::collections::{BTreeMap, BTreeSet};

use proto::Code;

/// Names an inode of the model.
pub type Id = u32;

/// The model's root directory.
pub const ROOT: Id = 0;

/// One file of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Directory: its entries.
    Dir(BTreeMap<String, Id>),
    /// Regular file: its links. Contents are kept apart ([`Tree::contents`]), since snapshots do not need them.
    File {
        /// Names of the file.
        nlink: u32,
    },
    /// Symbolic link: its target.
    Symlink(String),
}

/// Contents of a regular file.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// The bytes as the application sees them.
    pub data: Vec<u8>,
    /// Number of the last write.
    pub version: u32,
    /// Files whose bytes may have been copied here, besides its own.
    pub copied_from: BTreeSet<Id>,
    /// The bytes that were there when the last fsync or sync returned, if nothing was changed since.
    pub durable: bool,
    /// Number of the operation that made the file: it is durable once the file was fsynced.
    pub made_by: usize,
}

/// The names of a model: what a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Every inode that has a name.
    pub nodes: BTreeMap<Id, Node>,
}

/// Names and contents.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The names.
    pub names: Names,
    /// Contents of regular files, of unlinked but open ones too.
    pub contents: BTreeMap<Id, Content>,
    next: Id,
}

/// One change of names. Directories are named by their model id, so that an operation means the same to both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Makes a directory.
    Mkdir(Id, String),
    /// Makes a regular file; an existing one is an error.
    Create(Id, String),
    /// Makes a symbolic link.
    Symlink(Id, String, String),
    /// Gives a file one more name.
    Link(Id, Id, String),
    /// Takes a name away.
    Unlink(Id, String),
    /// Takes a directory away.
    Rmdir(Id, String),
    /// Moves an entry.
    Rename(Id, String, Id, String),
    /// Two entries change places.
    Exchange(Id, String, Id, String),
}

impl Default for Tree {
    fn default() -> Tree {
        let nodes = BTreeMap::from([(ROOT, Node::Dir(BTreeMap::new()))]);
        Tree { names: Names { nodes }, contents: BTreeMap::new(), next: 1 }
    }
}

impl Names {
    /// Entries of a directory.
    pub fn dir(&self, id: Id) -> Result<&BTreeMap<String, Id>, Code> {
        match self.nodes.get(&id) {
            Some(Node::Dir(entries)) => Ok(entries),
            Some(_) => Err(Code::NotDirectory),
            None => Err(Code::NotFound),
        }
    }

    fn dir_mut(&mut self, id: Id) -> Result<&mut BTreeMap<String, Id>, Code> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(entries)) => Ok(entries),
            Some(_) => Err(Code::NotDirectory),
            None => Err(Code::NotFound),
        }
    }

    /// What a name means.
    pub fn find(&self, dir: Id, name: &str) -> Result<Id, Code> {
        self.dir(dir)?.get(name).copied().ok_or(Code::NotFound)
    }

    fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes.get(&id), Some(Node::Dir(_)))
    }

    fn holds(&self, dir: Id, below: Id) -> bool {
        let Ok(entries) = self.dir(dir) else { return false };
        dir == below || entries.values().any(|id| self.is_dir(*id) && self.holds(*id, below))
    }

    /// Takes a name from a directory; the node goes with its last name.
    fn drop_name(&mut self, dir: Id, name: &str) -> Result<(), Code> {
        let id = self.find(dir, name)?;
        self.dir_mut(dir)?.remove(name);
        match self.nodes.get_mut(&id) {
            Some(Node::File { nlink }) if *nlink > 1 => *nlink -= 1,
            _ => {
                self.nodes.remove(&id);
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Does `op`; `number` is its place in the client's history. The result is what a file system has to answer.
    pub fn apply(&mut self, op: &Op, number: usize) -> Result<(), Code> {
        match op {
            Op::Mkdir(dir, name) => self.make(*dir, name, Node::Dir(BTreeMap::new())).map(drop),
            Op::Symlink(dir, name, target) => self.make(*dir, name, Node::Symlink(target.clone())).map(drop),
            Op::Create(dir, name) => {
                let id = self.make(*dir, name, Node::File { nlink: 1 })?;
                self.contents.insert(id, Content { made_by: number, ..Content::default() });
                Ok(())
            }
            Op::Link(id, dir, name) => self.link(*id, *dir, name),
            Op::Unlink(dir, name) => {
                let id = self.names.find(*dir, name)?;
                if self.names.is_dir(id) {
                    return Err(Code::IsDirectory);
                }
                self.names.drop_name(*dir, name)
            }
            Op::Rmdir(dir, name) => {
                let id = self.names.find(*dir, name)?;
                if !self.names.dir(id)?.is_empty() {
                    return Err(Code::NotEmpty);
                }
                self.names.drop_name(*dir, name)
            }
            Op::Rename(dir, name, to, new) => self.rename(*dir, name, *to, new),
            Op::Exchange(dir, name, to, new) => self.exchange(*dir, name, *to, new),
        }
    }

    fn exchange(&mut self, dir: Id, name: &str, to: Id, new: &str) -> Result<(), Code> {
        let (one, other) = (self.names.find(dir, name)?, self.names.find(to, new)?);
        let below = |id, dir| self.names.is_dir(id) && self.names.holds(id, dir);
        if below(one, to) || below(other, dir) {
            return Err(Code::Invalid);
        }
        self.names.dir_mut(dir)?.insert(name.to_owned(), other);
        self.names.dir_mut(to)?.insert(new.to_owned(), one);
        Ok(())
    }

    fn make(&mut self, dir: Id, name: &str, node: Node) -> Result<Id, Code> {
        let id = self.next;
        let entries = self.names.dir_mut(dir)?;
        if entries.contains_key(name) {
            return Err(Code::Exists);
        }
        entries.insert(name.to_owned(), id);
        self.names.nodes.insert(id, node);
        self.next += 1;
        Ok(id)
    }

    fn link(&mut self, id: Id, dir: Id, name: &str) -> Result<(), Code> {
        if self.names.dir(dir)?.contains_key(name) {
            return Err(Code::Exists);
        }
        match self.names.nodes.get_mut(&id) {
            Some(Node::File { nlink }) => *nlink += 1,
            _ => return Err(Code::NotFound),
        }
        self.names.dir_mut(dir)?.insert(name.to_owned(), id);
        Ok(())
    }

    fn rename(&mut self, dir: Id, name: &str, to: Id, new: &str) -> Result<(), Code> {
        let id = self.names.find(dir, name)?;
        let replaced = self.names.dir(to)?.get(new).copied();
        if replaced == Some(id) {
            return Ok(());
        }
        if self.names.is_dir(id) && self.names.holds(id, to) {
            return Err(Code::Invalid);
        }
        if let Some(old) = replaced {
            match (self.names.is_dir(id), self.names.is_dir(old)) {
                (true, false) => return Err(Code::NotDirectory),
                (false, true) if self.names.holds(old, dir) => return Err(Code::NotEmpty),
                (false, true) => return Err(Code::IsDirectory),
                (true, true) if !self.names.dir(old)?.is_empty() => return Err(Code::NotEmpty),
                _ => {}
            }
            self.names.drop_name(to, new)?;
        }
        self.names.dir_mut(dir)?.remove(name);
        self.names.dir_mut(to)?.insert(new.to_owned(), id);
        Ok(())
    }

    /// Ids of all directories.
    pub fn dirs(&self) -> Vec<Id> {
        self.names.nodes.iter().filter(|(_, node)| matches!(node, Node::Dir(_))).map(|(id, _)| *id).collect()
    }

    /// Ids of all regular files that have a name.
    pub fn files(&self) -> Vec<Id> {
        self.names
            .nodes
            .iter()
            .filter(|(_, node)| matches!(node, Node::File { .. }))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Notes that everything written so far is durable.
    pub fn all_durable(&mut self) {
        for content in self.contents.values_mut() {
            content.durable = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_follow_the_rules() {
        let mut tree = Tree::default();
        for (number, op) in [Op::Mkdir(ROOT, "d".into()), Op::Create(ROOT, "f".into())].iter().enumerate() {
            assert_eq!(tree.apply(op, number), Ok(()));
        }
        let (d, f) = (tree.names.find(ROOT, "d"), tree.names.find(ROOT, "f"));
        let swap = |one: &str, other: &str| Op::Exchange(ROOT, one.into(), ROOT, other.into());
        assert_eq!(tree.apply(&swap("d", "f"), 3), Ok(()));
        assert_eq!((tree.names.find(ROOT, "f"), tree.names.find(ROOT, "d")), (d, f));
        assert_eq!(tree.apply(&swap("d", "none"), 4), Err(Code::NotFound));
        let d = d.expect("made above");
        assert_eq!(tree.apply(&Op::Create(d, "x".into()), 5), Ok(()));
        assert_eq!(tree.apply(&Op::Exchange(ROOT, "f".into(), d, "x".into()), 6), Err(Code::Invalid));
        assert_eq!(tree.apply(&Op::Exchange(d, "x".into(), ROOT, "f".into()), 7), Err(Code::Invalid));
    }

    #[test]
    fn renames_follow_the_rules() {
        let mut tree = Tree::default();
        assert_eq!(tree.apply(&Op::Mkdir(ROOT, "d".into()), 1), Ok(()));
        let d = tree.names.find(ROOT, "d").expect("made above");
        assert_eq!(tree.apply(&Op::Create(d, "f".into()), 2), Ok(()));
        let f = tree.names.find(d, "f").expect("made above");
        assert_eq!(tree.apply(&Op::Rename(ROOT, "d".into(), d, "x".into()), 3), Err(Code::Invalid));
        assert_eq!(tree.apply(&Op::Link(f, ROOT, "g".into()), 4), Ok(()));
        assert_eq!(
            tree.apply(&Op::Rename(d, "f".into(), ROOT, "g".into()), 5),
            Ok(()),
            "two names of one file"
        );
        assert_eq!(tree.names.find(d, "f"), Ok(f));
        assert_eq!(tree.apply(&Op::Rmdir(ROOT, "d".into()), 6), Err(Code::NotEmpty));
        assert_eq!(tree.apply(&Op::Unlink(d, "f".into()), 7), Ok(()));
        assert_eq!(tree.names.nodes.get(&f), Some(&Node::File { nlink: 1 }));
        assert_eq!(tree.apply(&Op::Rename(ROOT, "g".into(), ROOT, "d".into()), 8), Err(Code::IsDirectory));
    }
}
