//! Recursive next hops that depend on themselves.

use std::net::IpAddr;

use types::IpPrefix;

use super::Fault;

/// More recursive routes in turn than can be resolved.
const MAX_DEPTH: usize = 16;
/// So many prefixes with recursive routes are looked at for one next hop.
const MAX_LOOKS: usize = 1024;

/// What the routes of a prefix say of how its destinations are reached. Whether ports are up does
/// not matter: a route that cannot be used now ends a circle, since its port comes back.
pub(crate) enum Says {
    /// There is none.
    Nothing,
    /// One of them does not depend on other routes.
    Ends,
    /// By one of these recursive next hops.
    Recursive(Vec<IpAddr>),
}

/// The prefixes through which a recursive route would come back to itself, its own first and last.
/// `None` if it would not.
pub(crate) fn circle(
    prefix: IpPrefix,
    via: IpAddr,
    says: impl Fn(IpPrefix) -> Says,
) -> Option<Vec<IpPrefix>> {
    let mut search = Search { says, on_way: vec![prefix], looks: 0 };
    match search.follow(via) {
        Way::Circle { path, .. } => Some(path),
        Way::None | Way::Ends => None,
    }
}

/// The same as a fault of the route.
pub(crate) fn fault(destination: IpPrefix, path: &[IpPrefix]) -> Fault {
    let path: Vec<_> = path.iter().map(IpPrefix::to_string).collect();
    let message =
        format!("the route to {destination} would depend on itself: {}", path.join(" > "));
    Fault::invalid("via", message).hint(
        "a route to the next hop that is not recursive, or that has a longer prefix than those \
        and leads elsewhere",
    )
}

/// Where a next hop leads.
enum Way {
    /// No route leads there.
    None,
    Ends,
    /// Back to the prefix at this position of the way.
    Circle {
        at: usize,
        path: Vec<IpPrefix>,
    },
}

struct Search<F> {
    says: F,
    /// The prefixes of the routes that wait for this one.
    on_way: Vec<IpPrefix>,
    looks: usize,
}

impl<F: Fn(IpPrefix) -> Says> Search<F> {
    fn follow(&mut self, via: IpAddr) -> Way {
        let longest = if via.is_ipv4() { 32 } else { 128 };
        for length in (0..=longest).rev() {
            let Ok(prefix) = IpPrefix::new(via, length) else { continue };
            match self.by(prefix.network()) {
                Way::None => {}
                found => return found,
            }
        }
        Way::None
    }

    /// By the routes of one prefix.
    fn by(&mut self, prefix: IpPrefix) -> Way {
        if let Some(at) = self.on_way.iter().position(|waiting| *waiting == prefix) {
            return Way::Circle { at, path: [&self.on_way[at..], &[prefix]].concat() };
        }
        let all = match (self.says)(prefix) {
            Says::Nothing => return Way::None,
            Says::Ends => return Way::Ends,
            Says::Recursive(all) => all,
        };
        self.looks += 1;
        if self.on_way.len() > MAX_DEPTH || self.looks > MAX_LOOKS {
            return Way::Ends;
        }
        let mut way = Way::None;
        for via in all {
            self.on_way.push(prefix);
            let found = self.follow(via);
            self.on_way.pop();
            match found {
                Way::Ends => return Way::Ends,
                // A circle of that route alone only makes it useless.
                Way::Circle { at, path } if at < self.on_way.len() => {
                    way = Way::Circle { at, path };
                }
                Way::Circle { .. } | Way::None => {}
            }
        }
        way
    }
}
