//! The order in which a breath calls the apps.

/// The push order of a graph of `apps` nodes with links `(from, to)`.
///
/// This is a topological order by Kahn's algorithm; ties go to the lower number. [Links that close a
/// loop](closing_links) are ignored: packets on such a link wait for the next breath.
pub fn push_order(apps: usize, links: &[(usize, usize)], sources: &[usize]) -> Vec<usize> {
    let closing = closing_links(apps, links, sources);
    let mut indegree = vec![0usize; apps];
    let forward = || links.iter().zip(&closing).filter(|(_, closing)| !**closing).map(|(link, _)| *link);
    for (_, to) in forward() {
        indegree[to] += 1;
    }
    let mut outgoing = vec![Vec::new(); apps];
    for (from, to) in forward() {
        outgoing[from].push(to);
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..apps).filter(|&app| indegree[app] == 0).collect();
    let mut order = Vec::with_capacity(apps);
    while let Some(app) = ready.pop_first() {
        order.push(app);
        for &to in &outgoing[app] {
            indegree[to] -= 1;
            if indegree[to] == 0 {
                ready.insert(to);
            }
        }
    }
    debug_assert_eq!(order.len(), apps, "without its closing links the graph has no cycle");
    order
}

/// For each link `(from, to)` of a graph of `apps` nodes, whether it closes a loop.
///
/// These are the back edges of a depth-first search that starts from the `sources`, then from the other apps by number,
/// and follows links in their order. In the engine the sources are the apps that pull.
///
/// Without these links the graph has no loop. Each of them leads back to an app that reaches the link's sender.
///
/// ```
/// use bellows_wiring::closing_links;
///
/// assert_eq!(closing_links(3, &[(0, 1), (1, 2), (2, 1)], &[0]), [false, false, true]);
/// ```
///
/// # Panics
/// If a number is not below `apps`.
pub fn closing_links(apps: usize, links: &[(usize, usize)], sources: &[usize]) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        New,
        OnPath,
        Done,
    }
    let mut outgoing = vec![Vec::new(); apps];
    for (link, (from, _)) in links.iter().enumerate() {
        outgoing[*from].push(link);
    }
    let mut closing = vec![false; links.len()];
    let mut state = vec![VisitState::New; apps];
    for root in sources.iter().copied().chain(0..apps) {
        if state[root] != VisitState::New {
            continue;
        }
        state[root] = VisitState::OnPath;
        // The path: each app with the number of its links that have been followed.
        let mut path = vec![(root, 0)];
        while let Some((app, followed)) = path.last_mut() {
            let Some(&link) = outgoing[*app].get(*followed) else {
                state[*app] = VisitState::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            let to = links[link].1;
            match state[to] {
                VisitState::OnPath => closing[link] = true,
                VisitState::Done => {}
                VisitState::New => {
                    state[to] = VisitState::OnPath;
                    path.push((to, 0));
                }
            }
        }
    }
    closing
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_is_pushed_from_its_source() {
        assert_eq!(push_order(4, &[(2, 0), (0, 3), (3, 1)], &[2]), [2, 0, 3, 1]);
    }

    #[test]
    fn ties_go_by_the_order_of_the_config() {
        assert_eq!(push_order(4, &[(0, 3), (0, 2), (0, 1)], &[0]), [0, 1, 2, 3]);
    }

    #[test]
    fn a_loop_is_cut_at_the_link_that_closes_it() {
        // 0 -> 1 -> 2 -> 1: the link from 2 back to 1 waits for the next breath.
        assert_eq!(push_order(3, &[(2, 1), (0, 1), (1, 2)], &[0]), [0, 1, 2]);
        assert_eq!(closing_links(3, &[(2, 1), (0, 1), (1, 2)], &[0]), [true, false, false]);
    }

    proptest! {
        /// Each app occurs once, and every link that does not close a loop leads forward.
        #[test]
        fn every_app_is_pushed_once_and_links_lead_forward(
            links in proptest::collection::vec((0usize..12, 0usize..12), 0..40),
            sources in proptest::collection::vec(0usize..12, 0..4),
        ) {
            let order = push_order(12, &links, &sources);
            let mut sorted = order.clone();
            sorted.sort();
            prop_assert_eq!(sorted, (0..12).collect::<Vec<_>>());
            let position = |app| order.iter().position(|&other| other == app);
            for (link, closing) in links.iter().zip(closing_links(12, &links, &sources)) {
                prop_assert!(closing || position(link.0) < position(link.1));
            }
        }
    }
}
