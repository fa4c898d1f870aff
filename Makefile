# The few targets there are; `make test` is what CI runs.
# `bare` is `up` without a cluster, for Terraform.
.PHONY: up bare down test lint deps
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
