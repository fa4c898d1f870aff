//! JSON, YAML, protobuf, Table and watch-frame encodings. Pure.
