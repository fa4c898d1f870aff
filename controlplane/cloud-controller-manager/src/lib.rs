//! Node, node lifecycle, route and service controllers over the provider interface.
