#!/usr/bin/env python3
"""Writes src/generated/kinds.txt, the table of facts about every definition of the API.

Inputs are checkouts of public sources of one Kubernetes minor; nothing but names, numbers and keys is taken from them:

    generate.py --spec swagger.json --protos DIR --go PREFIX=DIR [--go ...] --apply internal.go > src/generated/kinds.txt

  --spec    api/openapi-spec/swagger.json of kubernetes/kubernetes
  --protos  folder in which `api/core/v1/generated.proto` is found
  --go      Go sources: definition prefix and folder, such as io.k8s.api=…/api; gives `omitempty` and pointers
  --apply   applyconfigurations/internal/internal.go of kubernetes/client-go; gives defaults, and checks list types

The format is told in src/table.rs, which reads it. Differences between the sources are listed on stderr.
"""

import argparse
import json
import re
import sys
from pathlib import Path

STRUCT = re.compile(r"^type (\w+) struct \{\s*$")
ALIAS = re.compile(r"^type (\w+) = (\w+)\.(\w+)$")
NAMED = re.compile(r"^type (\w+) ([^\s={]+)\s*(?://.*)?$")
FIELD = re.compile(r"^\s*(?:(\w+)\s+)?(\S.*?)\s+`([^`]*)`")
JSON_TAG = re.compile(r'json:"([^"]*)"')
MESSAGE = re.compile(r"^message (\w+) \{")
PROTO_FIELD = re.compile(r"^\s*(optional|repeated|required)?\s*(map<[^>]+>|[\w.]+)\s+(\w+)\s*=\s*(\d+)")


def warn(*words):
    print(*words, file=sys.stderr)


def parse_go(folder):
    """{package folder: ({struct: [(go name or None, type, json name, omit)]}, {named type: underlying})}"""
    packages = {}
    for path in sorted(Path(folder).rglob("*.go")):
        if path.name.endswith("_test.go") or path.name.startswith(("zz_", "generated.pb")):
            continue
        structs, named = packages.setdefault(str(path.parent.relative_to(folder)), ({}, {}))
        current = None
        for line in path.read_text().splitlines():
            if current is None:
                if m := STRUCT.match(line):
                    current = structs.setdefault(m.group(1), [])
                elif m := ALIAS.match(line):
                    named[m.group(1)] = "=" + m.group(2) + "." + m.group(3)
                elif m := NAMED.match(line):
                    named[m.group(1)] = m.group(2)
                continue
            if line.startswith("}"):
                current = None
                continue
            if line.strip().startswith("//"):
                continue
            if (m := FIELD.match(line)) and (tag := JSON_TAG.search(m.group(3))):
                name, *options = tag.group(1).split(",")
                omit = "z" if "omitzero" in options else "o" if "omitempty" in options else ""
                if "inline" in options or (m.group(1) is None and not name):
                    name = None
                current.append((m.group(1), m.group(2), name, omit))
    return packages


def parse_protos(folder):
    """{proto package: {message: {field: (number, type, repeated)}}}"""
    packages = {}
    for path in sorted(Path(folder).rglob("*.proto")):
        package, message = "", None
        for line in path.read_text().splitlines():
            if line.startswith("package "):
                package = line.split()[1].rstrip(";")
            elif m := MESSAGE.match(line):
                message = packages.setdefault(package, {}).setdefault(m.group(1), {})
            elif line.startswith("}"):
                message = None
            elif message is not None and (m := PROTO_FIELD.match(line)):
                message[m.group(3)] = (int(m.group(4)), m.group(2), m.group(1) == "repeated")
    return packages


def parse_apply(path):
    """{definition: {field: (list relationship or None, keys, default or None)}}; a reader of that one file's layout."""
    text = Path(path).read_text()
    body = text[text.index("`types:") + 1 : text.rindex("`)")]
    types, current, field, keys = {}, None, None, False
    for line in body.splitlines():
        indent = len(line) - len(line.lstrip())
        word = line.strip()
        if indent == 0 and word.startswith("- name: "):
            current, field = types.setdefault(word[8:], {}), None
        elif indent == 4 and word.startswith("- name: ") and current is not None:
            field = {"rel": None, "keys": [], "default": None, "list": False}
            current[word[8:]] = field
            keys = False
        elif field is not None and indent == 6 and word.startswith("default:"):
            value = word[8:].strip()
            try:
                field["default"] = json.loads(value)
            except ValueError:
                field["default"] = value
        elif field is not None and indent == 8 and word == "list:":
            field["list"] = True
        elif field is not None and indent == 10 and word.startswith("elementRelationship:"):
            field["rel"] = word.split(":")[1].strip()
        elif field is not None and indent == 10 and word == "keys:":
            keys = True
        elif field is not None and keys and word.startswith("- ") and indent == 10:
            field["keys"].append(word[2:])
        elif indent <= 6:
            keys = False
    return types


class Generator:
    def __init__(self, args):
        self.definitions = json.loads(Path(args.spec).read_text())["definitions"]
        self.protos = parse_protos(args.protos)
        self.go = {}
        for pair in args.go:
            prefix, folder = pair.split("=", 1)
            for package, content in parse_go(folder).items():
                self.go[prefix + "." + package.replace("/", ".")] = content
        self.apply = parse_apply(args.apply)

    # -- types ---------------------------------------------------------------------------------------------------

    def type_of(self, prop):
        if "$ref" in prop:
            return "@" + prop["$ref"].removeprefix("#/definitions/").removeprefix("io.k8s.")
        kind, fmt = prop.get("type"), prop.get("format")
        if kind == "array":
            return "[" + self.type_of(prop["items"])
        if kind == "object":
            return "{" + self.type_of(prop["additionalProperties"]) if "additionalProperties" in prop else "*"
        return {
            ("string", None): "s",
            ("string", "byte"): "x",
            ("string", "date-time"): "t",
            ("string", "int-or-string"): "q",
            ("integer", "int32"): "i",
            ("integer", "int64"): "l",
            ("boolean", None): "b",
            ("number", "double"): "d",
            (None, None): "*",
        }[(kind, fmt)]

    # -- Go ------------------------------------------------------------------------------------------------------

    def go_fields(self, package, struct, trail=()):
        """{json name: (type, omit, [embedded type names])}, inlined structs flattened."""
        structs, named = self.go.get(package, ({}, {}))
        fields = {}
        alias = named.get(struct, "")
        if alias.startswith("="):
            # An alias of a type of another version of the same group, imported under the version's name.
            version, struct = alias[1:].split(".")
            return self.go_fields(package.rsplit(".", 1)[0] + "." + version, struct, trail)
        for go_name, go_type, name, omit in structs.get(struct, []):
            if name is None:
                bare = go_type.lstrip("*")
                if "." in bare:
                    if bare.endswith("TypeMeta"):
                        continue
                    warn("embedded foreign struct", package, struct, go_type)
                    continue
                if bare == "TypeMeta":
                    continue
                for key, value in self.go_fields(package, bare, trail + (go_name or bare,)).items():
                    fields.setdefault(key, value)
            elif name != "-":
                fields[name] = (go_type, omit, trail)
        return fields

    # -- protobuf ------------------------------------------------------------------------------------------------

    def proto_message(self, definition):
        package, message = definition.rsplit(".", 1)
        package = package.removeprefix("io.k8s.").replace("-", "_")
        return self.protos.get(package, {}).get(message), package

    def proto_of(self, definition, field, trail):
        message, package = self.proto_message(definition)
        if message is None:
            return None
        path = []
        for embedded in trail:
            hit = [f for f in message.values() if f[1].rsplit(".", 1)[-1] == embedded]
            if not hit:
                return None
            path.append(str(hit[0][0]))
            home = hit[0][1].lstrip(".").rsplit(".", 1)[0] if "." in hit[0][1] else package
            package, message = home, self.protos.get(home, {}).get(embedded)
            if message is None:
                return None
        by_case = {name.lower(): value for name, value in message.items()}
        hit = message.get(field) or message.get(field.lstrip("$")) or message.get(camel(field)) or by_case.get(field.lower())
        if hit is None:
            return None
        path.append(str(hit[0]))
        return ".".join(path), hit[1], hit[2]

    def proto_suffix(self, kind, proto):
        """The proto type where it does not follow from the JSON type."""
        if proto.startswith("map<"):
            value = proto[4:-1].split(",")[1].strip()
            return self.proto_suffix(kind.lstrip("{"), value) if kind.startswith("{") else ":" + proto
        expected = {"s": "string", "b": "bool", "i": "int32", "l": "int64", "d": "double", "x": "bytes"}
        bare = kind.lstrip("[")
        if bare in expected:
            return "" if proto == expected[bare] else ":" + proto
        if bare.startswith("@") and bare.rsplit(".", 1)[1] == proto.rsplit(".", 1)[-1]:
            return ""
        return ":" + proto

    # -- output --------------------------------------------------------------------------------------------------

    def field_line(self, definition, name, prop, required):
        package, struct = definition.rsplit(".", 1)
        kind = self.type_of(prop)
        go = self.go_fields(package, struct).get(name)
        flags = []
        if name in required:
            flags.append("r")
        trail = ()
        if go is None:
            if name not in ("apiVersion", "kind"):
                warn("no Go field", definition, name)
            if name not in required:
                flags.append("o")
                if "$ref" in prop:
                    flags.append("p")
        else:
            go_type, omit, trail = go
            if omit:
                flags.append(omit)
            if go_type.startswith("*"):
                flags.append("p")
            bare = go_type.lstrip("*")
            alias = bare.split(".")[-1]
            if kind in ("s", "i", "l", "b", "d") and bare not in (
                "string", "int32", "int64", "bool", "float64", "int", "uint32", "uint64", "byte", "float32", "int16",
            ):
                if self.is_alias(package, bare):
                    bare = self.go[package][1][bare][1:]
                scalar = (package.rsplit(".", 1)[1] + "." + alias) if "." not in bare else go_package(bare)
                flags.append("g=" + scalar)
            elif kind.startswith("[") or kind.startswith("{"):
                if bare[0] not in "[m" and not self.is_alias(package, bare):
                    flags.append("g=" + (package.rsplit(".", 1)[1] + "." + alias if "." not in bare else go_package(bare)))
        flags += self.structure_flags(definition, name, prop)
        proto = self.proto_of(definition, name, trail)
        if proto is None:
            if name not in ("apiVersion", "kind") and self.proto_message(definition)[0] is not None:
                warn("no proto field", definition, name, trail)
            number = "-"
        else:
            number = proto[0] + self.proto_suffix(kind, proto[1])
        return " ".join([name, kind, number.replace(" ", ""), *flags])

    def is_alias(self, package, name):
        return self.go.get(package, ({}, {}))[1].get(name, "").startswith("=")

    def structure_flags(self, definition, name, prop):
        flags = []
        list_type, keys = prop.get("x-kubernetes-list-type"), prop.get("x-kubernetes-list-map-keys")
        strategy, merge_key = prop.get("x-kubernetes-patch-strategy"), prop.get("x-kubernetes-patch-merge-key")
        if prop.get("type") == "array":
            if list_type is None and strategy in ("merge", "merge,retainKeys"):
                list_type, keys = ("map", [merge_key]) if merge_key else ("set", None)
            if list_type == "set":
                flags.append("ls")
            elif list_type == "map":
                flags.append("lm=" + ",".join(keys))
        map_type = prop.get("x-kubernetes-map-type")
        if map_type:
            flags.append({"atomic": "ma", "granular": "mg"}[map_type])
        if strategy:
            flags.append("P=" + strategy.replace("merge,retainKeys", "merge+retainKeys"))
        if merge_key:
            flags.append("K=" + merge_key)
        known = self.apply.get(definition, {}).get(name)
        if known is not None:
            default = known["default"]
            if default not in (None, "", {}, [], 0, False):
                flags.append("d=" + json.dumps(default, separators=(",", ":")))
            if prop.get("type") == "array":
                mine = "associative" if flags and any(f[:2] in ("ls", "lm") for f in flags) else "atomic"
                if known["rel"] != mine or sorted(known["keys"]) != sorted(keys or []):
                    warn("list type differs", definition, name, known, mine, keys)
        return flags

    def run(self):
        out = []
        for definition in sorted(self.definitions):
            d = self.definitions[definition]
            head = ["=" + definition.removeprefix("io.k8s.")]
            if "properties" not in d:
                head.append(self.special(definition, d))
            elif d.get("x-kubernetes-map-type") == "atomic":
                head.append("ma")
            for gvk in d.get("x-kubernetes-group-version-kind", []):
                # The options kinds are registered in every group; only their own is of use.
                if len(d["x-kubernetes-group-version-kind"]) > 4 and (gvk["group"], gvk["version"]) != ("", "v1"):
                    continue
                head.append("G=" + "/".join((gvk["group"], gvk["version"], gvk["kind"])))
            out.append(" ".join(head))
            required = d.get("required", [])
            for name, prop in sorted(d.get("properties", {}).items()):
                out.append(self.field_line(definition, name, prop, required))
        print("\n".join(out))

    def special(self, definition, d):
        last = definition.rsplit(".", 1)[1]
        return "T=" + {
            "Quantity": "quantity",
            "Time": "time",
            "MicroTime": "microtime",
            "IntOrString": "intorstring",
            "FieldsV1": "fieldsv1",
            "RawExtension": "raw",
            "JSON": "any",
            "JSONSchemaPropsOrArray": "any",
            "JSONSchemaPropsOrBool": "any",
            "JSONSchemaPropsOrStringArray": "any",
            "Patch": "any",
        }.get(last, "empty")


def go_package(name):
    return name.replace("metav1.", "v1.")


def camel(name):
    """The proto name of a dashed JSON name, such as x-kubernetes-list-type."""
    head, *rest = name.split("-")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", required=True)
    parser.add_argument("--protos", required=True)
    parser.add_argument("--go", action="append", default=[])
    parser.add_argument("--apply", required=True)
    Generator(parser.parse_args()).run()
