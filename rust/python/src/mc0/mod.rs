//! mc0: messages, and the roles that pass on, put and subscribe.

mod driven;
mod middleware;

pub(crate) use driven::middleware_machine;
pub(crate) use middleware::PyMiddleware;
