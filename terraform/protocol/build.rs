//! Generates the messages and services of the two protocols from `proto/`.

fn main() -> Result<(), std::io::Error> {
    let protocols = ["proto/host.proto", "proto/provider.proto"];
    tonic_prost_build::configure().compile_protos(&protocols, &["proto"])
}
