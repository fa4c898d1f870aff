//! Paths into a tree, printed as clients know them: `spec.containers[0].name`.

use std::fmt;

/// A path that borrows from its parent, so that walking a tree costs no allocation until an error is printed.
#[derive(Clone, Copy)]
pub enum Path<'a> {
    /// The whole object.
    Root,
    /// A field of an object.
    Field(&'a Path<'a>, &'a str),
    /// A key of a map, printed in brackets.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// A field below this path.
    pub fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }
    /// A map key below this path.
    pub fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
    /// A list item below this path.
    pub fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
