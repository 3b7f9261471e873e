"""What the end-to-end tests stand on: namespaces, a gateway process, a guest kernel, captures, configurations."""
