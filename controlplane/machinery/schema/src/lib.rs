//! Tables of facts about every built-in kind: fields, types, list and patch keys. Pure.
