"""Native code from ``tapec.ir`` functions: loop nests, LLVM text, engine, native entry."""
