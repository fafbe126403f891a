//! Keys, rights and the protection engine.
