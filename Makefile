# The few targets there are; `make test` is what CI runs.
# `bare` is `up` without a cluster, for Terraform.
.PHONY: up bare down test lint deps bench image
up: deps
	cargo build --bin minato --bin minato-bootstrap --bin kubelet --bin kube-proxy --bin minato-dns
	target/debug/minato up
bare: deps
	cargo build --bin minato --bin minato-bootstrap --bin kubelet --bin kube-proxy --bin minato-dns --bin terraform-provider-minato
	target/debug/minato up --bare
down:
	cargo build --bin minato
	target/debug/minato down
deps:
	@./tests/install-deps.sh
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
test: deps lint
	cargo nextest run --workspace --profile ci
bench: deps
	cargo build --release --package minato --package minato-bench --bins
	target/release/minato-bench run --output .minato/bench.json
image:
	@./tests/install-deps.sh mmdebstrap qemu-utils e2fsprogs
	cargo build --release --bin minato-bootstrap --bin kubelet --bin kube-proxy --bin minato-dns --bin minato-images
	node-image/image/build target/release .minato/image
