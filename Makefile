# The few targets there are; `make test` is what CI runs.
.PHONY: test lint deps
deps:
	@./tests/install-deps.sh
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
test: deps lint
	cargo nextest run --workspace --profile ci
