/*
 * Ticks, batches, rotation, takeover, failover and resurrect of a set of nodes.
 *
 * One transition is one transaction of one database, or one answer on its way. Everything that a
 * process remembers between two transitions is a local variable, and is lost when it is killed;
 * arrays indexed by a node are tables of that node's database. docs/design/takeover-model.md says
 * which code each step stands for. A scenario is chosen with one of
 *
 *     -DLIVE      takeover of a root that works, --abort at any time, takeover killed and run again
 *     -DBACK      takeover, and takeover back
 *     -DTWO       two takeovers and --abort, run at the same time by people who do not know of each other
 *     -DDEAD      failover: the root is killed, or only believed dead; it comes back and is resurrected;
 *                 with -DLATE one of the writers has an old snapshot
 *     -DRIVALS    two failovers to different nodes at the same time
 *     -DBEGUN     a takeover that was begun meets a failover: the root dies in the middle of it, the same
 *                 node replaces it, it comes back, and whoever was at it goes on: takeover, --abort, resurrect
 *
 * and a planted mistake with one of the flags that model/cases.py lists.
 */

#define A 0                     /* the root at the beginning */
#define B 1                     /* a branch */
#if defined(DEAD) || defined(RIVALS)
#define N 4
#define C 2                     /* a branch beside it */
#define D 3                     /* a leaf of A */
#else
#define D 2
#define C 2
#if defined(TWO) || defined(BEGUN)
#define N 2
#else
#define N 3
#endif
#endif

#ifndef T
#define T 8                     /* ticks 0 .. T-1 */
#endif
#define E 4                     /* reigns that can be minted */
#ifndef CRASHES
#define CRASHES 1               /* how often a takeover, failover or resurrect is killed */
#endif
#ifndef LOSSES
#define LOSSES 1                /* how often the session of a command is lost */
#endif
#ifndef IDLE
#define IDLE 0                  /* ticks without an event */
#endif

#define ROOT 1
#define BRANCH 2
#define LEAF 3

/* -- tables of each node's database ------------------------------------------------------------ */

byte typ[N];                    /* pgq_node.node_info.node_type */
bit  open[N];                   /* not pgq.queue.queue_disable_insert */
byte to_tick[N];                /* attribute takeover_tick: the last tick of a reign that is about to end; 0: none */
byte plan[N];                   /* attribute takeover_epoch: what the queue was closed for; 0: nothing */
byte bar[N];                    /* vedur.barred_epoch, one bit each */
byte prov[N];                   /* pgq_node.local_state.provider_node */
byte pos[N];                    /* pgq_node.local_state.last_tick_id */
byte ep[N];                     /* vedur.reign: the last reign that the node knows */
byte top[N];                    /* newest tick of the node's queue */
byte low[N];                    /* oldest tick of the node's queue */
byte q[N * T];                  /* events of each tick of the node's queue, one bit each */
byte pend[N];                   /* events that are committed and in no tick yet */
byte tab[N];                    /* events whose changes are in the tables */
bit  stale[N];                  /* tables that are to be repaired: batches pass them by */
byte sub[N * N];                /* sub[p * N + n]: what p keeps for n and all below it, plus 1; 0: nothing */
byte gw[N];                     /* the global watermark as this node has been told */
bit  tag[N];                    /* node_location.dead of A, as this node has been told */
byte lk[N];                     /* the command whose session holds the lock vedur.move; a lost session frees it */
byte lost[N];                   /* vedur.lost_event */
bit  up[N];                     /* the server runs */
byte snap[N];                   /* writers that have a snapshot and have not written yet */
byte ins[N];                    /* writers that have written and not ended: they lock the event table */

/* -- what only the reader of the model knows ---------------------------------------------------- */

byte reigns = 1;                /* minted so far; the first is 0 */
byte par[E];                    /* the reign before */
byte fk[E];                     /* its last tick */
byte hist[E * T];               /* all events up to a tick of a reign */
byte written;                   /* events whose commit was acknowledged, or would have been */
byte w;                         /* for inlines; always 0 between transitions */
byte kills = CRASHES;
byte losses = LOSSES;
byte plans;                     /* epochs prepared so far */
byte idle = IDLE;
#ifdef BEGUN
byte made[E];                   /* vedur.reign: the epoch that a takeover had prepared for a reign; 0: a failover */
bit  boots;                     /* the server of A was started again: sessions from before are lost */
#endif

/* the reign of tick t on the history that ends in reign e */
#define EO(t, e)        ((e) == 0 || (t) > fk[e] -> (e) : (par[e] == 0 || (t) > fk[par[e]] -> par[e] : par[par[e]]))
/* what the tables show at tick t of that history */
#define TRUTH(t, e)     hist[EO(t, e) * T + (t)]
#ifdef NO_EPOCH
#define ON(e1, p1, e2)  (true)
#else
/* tick p1 of reign e1 is a tick of the history that ends in reign e2 */
#define ON(e1, p1, e2)  ((e1) == (e2) \
    || (par[e2] == (e1) && (p1) <= fk[e2]) \
    || (par[par[e2]] == (e1) && (p1) <= fk[par[e2]] && (p1) <= fk[e2]))
#endif
#define SUB(p, n)       sub[(p) * N + (n)]
#define MIN(a, b)       ((a) < (b) -> (a) : (b))
#define BIT(i)          (1 << (i))

/* the lowest tick that anybody below node n needs, as n knows; its newest tick if nobody reads here */
#define KEPT(n, m)      (SUB(n, m) -> SUB(n, m) - 1 : top[n])
#if N == 2
#define LOWEST(n)       (MIN(KEPT(n, A), KEPT(n, B)))
#elif N == 3
#define LOWEST(n)       (MIN(KEPT(n, A), MIN(KEPT(n, B), KEPT(n, C))))
#else
#define LOWEST(n)       (MIN(MIN(KEPT(n, A), KEPT(n, B)), MIN(KEPT(n, C), KEPT(n, D))))
#endif
/* what a root tells to all, and a branch has heard */
#define GLOBAL(n)       (typ[n] == ROOT -> LOWEST(n) : gw[n])

/* the properties that hold after every transaction on a node */
inline check(n) {
    /* its position is a tick of its history, and its tables are what they were there on the root */
    assert(pos[n] < T && (typ[n] == LEAF || typ[n] == ROOT || stale[n] || pos[n] == top[n]));
    assert(stale[n] || typ[n] == ROOT || tab[n] == TRUTH(pos[n], ep[n]));
    /* at most one root of a reign accepts writes */
    assert(!(open[A] && open[B] && ep[A] == ep[B]));
#if defined(DEAD) || defined(RIVALS)
    assert(!(open[A] && open[C] && ep[A] == ep[C]));
    assert(!(open[B] && open[C] && ep[B] == ep[C]));
#elif !defined(BEGUN)
    /* and where nobody is dead, at most one at all */
    assert(!(open[A] && open[B]));
#endif
}

/* a tick of an open or closing root: everything that is committed is in it, or in an earlier one */
inline tick(n) {
    assert(top[n] + 1 < T);
    hist[ep[n] * T + top[n] + 1] = TRUTH(top[n], ep[n]) | pend[n];
    top[n] = top[n] + 1;
    pos[n] = top[n];
    q[n * T + top[n]] = pend[n];
    pend[n] = 0
}

/* mint a reign that begins behind tick t of reign e */
inline mint(e, t, new) {
    assert(reigns < E);
    new = reigns;
    par[new] = e;
    fk[new] = t;
    reigns = reigns + 1
}

/* -- writers: the capture trigger on the root ---------------------------------------------------- */

inline commit_write(i, n) {
    if
    :: ins[n] & BIT(i) ->
        ins[n] = ins[n] & ~BIT(i);
        pend[n] = pend[n] | BIT(i);
        tab[n] = tab[n] | BIT(i);
        written = written | BIT(i)
    :: else                                             /* the server has died meanwhile */
    fi
}

/* READ COMMITTED: the statement that writes looks whether the queue is open */
proctype writer(byte i) {
    byte n;
    if
    :: atomic { up[A] && open[A] -> n = A; ins[n] = ins[n] | BIT(i) }
    :: atomic { up[B] && open[B] -> n = B; ins[n] = ins[n] | BIT(i) }
#ifdef RIVALS
    :: atomic { up[C] && open[C] -> n = C; ins[n] = ins[n] | BIT(i) }
#endif
    fi;
    atomic { up[n] -> commit_write(i, n); n = 0 }
}

/* REPEATABLE READ: it sees the queue as it was when the transaction began */
proctype old_writer(byte i) {
    bit saw;
    atomic { up[A] -> saw = open[A]; snap[A] = snap[A] | BIT(i) };
    atomic {
        up[A] ->
        if
        :: saw && (snap[A] & BIT(i)) -> ins[A] = ins[A] | BIT(i)
        :: else
        fi;
        snap[A] = snap[A] & ~BIT(i); saw = 0
    };
    atomic { up[A] -> commit_write(i, A) }
}

/* -- rotation: each node's queue, as far as its consumers and the global watermark allow ---------- */

/*
 * Rotation and reports of watermarks happen at once here, which is the worst that they can do: what
 * is asserted of rotation is that nothing needed was removed, and who rotates or reports later has
 * removed less. (A lost report, and a rotation that does not run, are such delays.)
 */
inline rotate(n) {
#ifdef ROTATE_BLIND
    w = top[n];
#else
    w = LOWEST(n);
#ifndef ROTATE_LOCAL
    if :: typ[n] == BRANCH && gw[n] < w -> w = gw[n] :: else fi;
#endif
#endif
    if :: typ[n] != LEAF && low[n] < w -> low[n] = w :: else fi;
    w = 0
}

/* node n reports its watermark to its provider, and hears the global one */
inline report(n) {
    if
    :: SUB(prov[n], n) && pos[n] <= top[prov[n]] ->
        if :: typ[n] == LEAF -> w = pos[n] :: else -> w = LOWEST(n) fi;
        if :: SUB(prov[n], n) < w + 1 -> SUB(prov[n], n) = w + 1 :: else fi;
        w = GLOBAL(prov[n]);
        if :: typ[n] == BRANCH && gw[n] < w -> gw[n] = w :: else fi;
        rotate(prov[n]);
        rotate(n)
    :: else
    fi
}

/* -- the ticker: under its lock, and only where the queue is open --------------------------------- */

proctype ticker() {
    do
    :: atomic { up[A] && open[A] && (pend[A] || idle) ->
           if :: pend[A] == 0 -> idle = idle - 1 :: else fi; tick(A); check(A); rotate(A) }
    :: atomic { up[B] && open[B] && pend[B] -> tick(B); check(B); rotate(B) }
#ifdef RIVALS
    :: atomic { up[C] && open[C] && pend[C] -> tick(C); check(C); rotate(C) }
#endif
    od
}

/* -- the worker of a node: take, stage, commit in one transaction, report -------------------------- */

#define FENCED(n)   (tag[n] && prov[n] == A)

inline publish(n) {
    if
    :: kind == BRANCH ->
        q[n * T + from + 1] = m1;
        if :: to > from + 1 -> q[n * T + to] = m2 :: else fi;
        top[n] = to
    :: else
    fi
}

#define FORGET      p = 0; from = 0; to = 0; e = 0; m1 = 0; m2 = 0; kind = 0

proctype worker(byte n) {
    byte p, from, to, e, m1, m2, kind;
    do
    :: atomic {                                         /* take a batch, and stage it */
           typ[n] != ROOT && up[n] && up[prov[n]] && !FENCED(n) && SUB(prov[n], n) &&
           pos[n] < top[prov[n]] && typ[prov[n]] != LEAF && ON(ep[n], pos[n], ep[prov[n]]) ->
           p = prov[n]; from = pos[n]; kind = typ[n];
           /* rotation has removed nothing that the node still needs */
           assert(low[p] <= from);
           to = from + 1;
           m1 = q[p * T + to];
           if
           :: to < top[p] -> to = to + 1; m2 = q[p * T + to]
           :: true
           fi;
           e = EO(to, ep[p])
       };
       if
       :: atomic {                                      /* the transaction of the batch */
              if
#ifdef NO_RECHECK
              :: up[n] && pos[n] == from ->
#else
              :: up[n] && pos[n] == from && prov[n] == p && typ[n] == kind && !FENCED(n) ->
#endif
                  if
                  :: !stale[n] ->
                      assert(!(tab[n] & (m1 | m2)));    /* nothing is applied twice */
                      tab[n] = tab[n] | m1 | m2
                  :: else
                  fi;
#if !defined(POSITION_APART) && !defined(PUBLISH_APART)
                  publish(n);
                  pos[n] = to; ep[n] = e;
                  check(n);
                  if :: up[prov[n]] -> report(n) :: else fi;
                  FORGET
#elif defined(POSITION_APART)
                  publish(n)
#else
                  pos[n] = to; ep[n] = e
#endif
              :: else -> FORGET                         /* the node has changed: stage again */
              fi
          };
#ifdef POSITION_APART
          if
          :: atomic { pos[n] == from -> pos[n] = to; ep[n] = e; FORGET }
          :: atomic { FORGET }                          /* killed */
          fi
#elif defined(PUBLISH_APART)
          if
          :: atomic { pos[n] == to -> publish(n); FORGET }
          :: atomic { FORGET }                          /* killed */
          fi
#else
          skip
#endif
       :: atomic { FORGET }                             /* killed before it */
       fi
    :: atomic { typ[n] == BRANCH && up[n] && up[prov[n]] && ON(ep[n], pos[n], ep[prov[n]]) &&
           SUB(prov[n], n) && pos[n] <= top[prov[n]] &&
           (SUB(prov[n], n) < LOWEST(n) + 1 || gw[n] < GLOBAL(prov[n])) -> report(n) }
    od
}

#if defined(LIVE) || defined(BACK) || defined(TWO) || defined(BEGUN)

/* -- takeover of a root that works: no step relies on a lock, sessions may be lost at any time ------- */

#define OR_KILLED   :: kills > 0 -> kills = kills - 1; goto again

#ifdef NO_PLAN
#define MINE_YET        (plan[o] != 0)
#define GONE            (plan[o] == 0)
#else
#define MINE_YET        (plan[o] == p)
#define GONE            (plan[o] != p)
#endif

/* the new root was promoted by this takeover: under its epoch, not only by that name */
#if defined(BEGUN) && !defined(BY_NAME)
#define PROMOTED        (typ[n] == ROOT && made[ep[n]] == p)
#else
#define PROMOTED        (typ[n] == ROOT)
#endif
#ifdef BEGUN
#define OR_LOST         :: !up[o] -> goto again          /* its session: the command is run again */
#else
#define OR_LOST
#endif

proctype takeover(byte o; byte n) {
    byte new, p, last;
again:
    atomic {                                            /* 4 close, and prepare an epoch */
        up[o];
        if
        :: typ[n] == ROOT -> p = plan[o]; goto turn
        :: typ[n] != ROOT && typ[o] != ROOT -> goto end
        :: typ[n] != ROOT && typ[o] == ROOT ->
            if
            :: plan[o] == 0 -> open[o] = 0; plans = plans + 1; plan[o] = plans; to_tick[o] = 0
            :: else                                     /* a takeover that was begun goes on */
            fi;
            p = plan[o]
        fi
    };
#ifndef NO_WAIT
    atomic {                                            /* 5 drain: snapshots older than the closing */
        if
        :: snap[o] == 0
        :: GONE -> goto end
        OR_LOST
        OR_KILLED
        fi
    };
#endif
    atomic {                                            /* 6 lock the event table, the last tick */
        if
        :: MINE_YET && ins[o] == 0 && up[o] ->
            if
            :: to_tick[o] == 0 ->
                if :: pend[o] -> tick(o) :: else fi;
                to_tick[o] = top[o]
            :: else
            fi;
            last = to_tick[o]
        :: GONE -> goto end                             /* somebody has aborted */
        OR_LOST
        OR_KILLED
        fi
    };
#ifndef NO_FOLLOW
    atomic {                                            /* 7 the new root follows */
        if
        :: pos[n] >= last
        :: GONE -> goto end
        OR_LOST
        OR_KILLED
        fi
    };
#endif
    atomic {                                            /* 8 promote: reign, old root subscribed, open */
        if
        :: typ[n] == ROOT                               /* it was promoted before */
        :: typ[n] != ROOT && (bar[n] & BIT(p)) -> goto end
#ifdef NO_FOLLOW
        :: typ[n] == BRANCH && !(bar[n] & BIT(p)) ->
#else
        :: typ[n] == BRANCH && !(bar[n] & BIT(p)) && pos[n] == last ->
#endif
#ifdef WATERMARK_AHEAD
            SUB(n, o) = last + 1;
#else
#ifndef SUBSCRIBE_LATE
            SUB(n, o) = gw[n] + 1;                      /* .OLD.watermark: nobody below OLD is behind it */
#endif
#endif
            mint(ep[n], pos[n], new);
#ifdef BEGUN
            made[new] = p;
#endif
            ep[n] = new; typ[n] = ROOT; open[n] = 1; prov[n] = n; new = 0; check(n); rotate(n)
        :: typ[n] == BRANCH && !(bar[n] & BIT(p)) && pos[n] != last -> goto end
        OR_KILLED
        fi
    };
turn:
    atomic {                                            /* 9 turn the old root */
        if
        :: up[o] && typ[o] == ROOT && p && MINE_YET && PROMOTED ->
            typ[o] = BRANCH; prov[o] = n; pos[o] = top[o]; ep[o] = ep[n];
            SUB(o, n) = 0; plan[o] = 0; to_tick[o] = 0;
#ifdef SUBSCRIBE_LATE
            SUB(n, o) = top[n] + 1;
#endif
            gw[o] = low[o];
            check(o)
        :: up[o] && !(typ[o] == ROOT && p && MINE_YET && PROMOTED)
        OR_LOST
        OR_KILLED
        fi
    };
#ifdef LIVE
    if                                                  /* change-provider of a leaf of the old root */
    :: atomic { prov[D] == o && typ[n] == ROOT && typ[o] == BRANCH ->
           assert(low[n] <= pos[D]); SUB(n, D) = pos[D] + 1 };
       atomic {
           if
           :: SUB(n, D) == pos[D] + 1 -> prov[D] = n; SUB(o, D) = 0     /* the position is locked */
           :: else -> SUB(n, D) = 0
           fi
       }
    :: true
    fi;
#endif
end:
    atomic { p = 0; last = 0 }
}

#ifdef BACK
/* the same command, once the first one is done */
proctype back() {
    typ[B] == ROOT && typ[A] == BRANCH;
    run takeover(B, A)
}
#endif

#ifdef BEGUN
#define SAME_SESSION    (up[o] && boots == b)
#define OR_ANEW         :: !SAME_SESSION -> goto anew    /* the command is run again */
#else
#define SAME_SESSION    (true)
#define OR_ANEW
#endif
#ifdef ABORT_BLIND
#define REFUSED         PROMOTED                        /* a failover to the same node is not seen */
#else
#define REFUSED         (typ[n] == ROOT)
#endif

proctype abort(byte o; byte n) {
    byte p;
#ifdef BEGUN
    bit b;
#endif
    if
    :: true -> goto end                                 /* nobody wants to */
#ifdef BEGUN
    :: plan[o]
#else
    :: atomic { plan[o] -> p = plan[o] }
#endif
    fi;
#ifdef BEGUN
anew:
    atomic { up[o] -> p = plan[o]; b = boots; if :: p == 0 -> goto end :: else fi };
#endif
    atomic {                                            /* bar the epoch where it would begin */
        if
        :: REFUSED -> goto end                          /* run takeover again to finish, or resurrect */
        OR_ANEW
        :: else ->
#ifndef NO_BAR
            bar[n] = bar[n] | BIT(p);
#endif
            skip
        fi
    };
    atomic {                                            /* then open the old root again */
        if
        :: SAME_SESSION && MINE_YET && typ[o] == ROOT ->
#ifdef BEGUN
            assert(typ[n] != ROOT);                     /* nobody opens a root that was replaced */
#endif
            open[o] = 1; plan[o] = 0; to_tick[o] = 0; check(o)
        OR_ANEW
        :: else
        fi
    };
end:
    p = 0
}
#endif

/* -- a takeover that was begun, and a failover to the same node ------------------------------------- */

#ifdef BEGUN

/* the server of the root dies at any time, and is started again once it was replaced, or was not */
proctype fall() {
    if
    :: atomic { up[A] = 0; snap[A] = 0;
           if :: ins[A] = 0 :: true fi };
       if
       :: atomic { typ[B] == BRANCH -> tag[B] = 1 };    /* takeover --dead-root */
          atomic {
              if
              :: typ[B] == BRANCH ->
                  mint(ep[B], pos[B], w);
                  ep[B] = w; w = 0; typ[B] = ROOT; open[B] = 1; prov[B] = B; SUB(B, A) = fk[ep[B]] + 1;
                  check(B); rotate(B)
              :: else                                   /* the takeover was quicker */
              fi
          }
       :: true
       fi;
       atomic { up[A] = 1; boots = 1; tag[B] = 0 }
    :: true
    fi
}

/* resurrect, where another node was made root and this one is none of its branches yet */
proctype come_back(byte n) {
    byte t, gone;
    atomic { up[A] && typ[n] == ROOT && typ[A] == ROOT && fk[ep[n]] <= top[A] -> open[A] = 0 };
    atomic { up[A] && snap[A] == 0 };
    atomic {
        up[A] && ins[A] == 0 ->
        if
        :: typ[A] == ROOT ->
            t = fk[ep[n]] + 1; gone = pend[A];
            do :: t <= top[A] -> gone = gone | q[A * T + t]; q[A * T + t] = 0; t = t + 1 :: else -> break od;
            lost[A] = lost[A] | gone; gone = 0; t = 0;
            pend[A] = 0; top[A] = fk[ep[n]]; pos[A] = top[A]; ep[A] = ep[n]; typ[A] = BRANCH; prov[A] = n;
            plan[A] = 0; to_tick[A] = 0; gw[A] = low[A]; SUB(A, n) = 0;
            tab[A] = TRUTH(pos[A], ep[A]);              /* its tables are repaired */
            check(A)
        :: else                                         /* the takeover has turned it meanwhile */
        fi
    }
}
#endif

/* -- failover: the root is dead, or believed to be --------------------------------------------------- */

#if defined(DEAD) || defined(RIVALS)

/* -- commands: a lock on every node that they change, held by the session that changes it ---------- */

#define MINE(n)     (lk[n] == me)

inline let_go() {
    d_step {
        if :: MINE(A) -> lk[A] = 0 :: else fi;
        if :: MINE(B) -> lk[B] = 0 :: else fi;
        if :: MINE(C) -> lk[C] = 0 :: else fi
    }
}

/* kill -9 at this place; the same command is run again */
#define OR_KILLED   :: kills > 0 -> kills = kills - 1; let_go(); goto again

proctype network() {
    do
    :: atomic { losses > 0 && lk[A] -> lk[A] = 0; losses = losses - 1 }
    :: atomic { losses > 0 && lk[B] -> lk[B] = 0; losses = losses - 1 }
#if defined(DEAD) || defined(RIVALS)
    :: atomic { losses > 0 && lk[C] -> lk[C] = 0; losses = losses - 1 }
#endif
    od
}

proctype killer() {
    if
    :: atomic { up[A] = 0; snap[A] = 0;
           if :: ins[A] = 0 :: true /* a prepared transaction survives */ fi };
       atomic { up[A] = 1 }
    :: true                                             /* it was only out of reach */
    fi
}

#ifdef RIVALS
#define OTHER_ROOT(n, c)    (typ[c] == ROOT)
#else
#define OTHER_ROOT(n, c)    (false)
#endif

proctype failover(byte n; byte c; byte me) {
    byte new;
again:
#ifdef NO_LOCK
    atomic { lk[n] == 0 -> lk[n] = me };
#else
    atomic { lk[B] == 0 -> lk[B] = me };                /* 1 check, with every survivor locked, by name */
    atomic { if :: lk[C] == 0 -> lk[C] = me :: else -> let_go(); goto again fi };
#ifndef NO_LOOK
    atomic { if :: MINE(n) && MINE(c) :: else -> let_go(); goto again fi };
#endif
#endif
    atomic {
        if
        :: OTHER_ROOT(n, c) -> let_go(); goto end
        :: !OTHER_ROOT(n, c) && typ[n] == ROOT -> goto promoted
        :: !OTHER_ROOT(n, c) && typ[n] != ROOT
        fi
    };
#ifndef NO_FENCE
    atomic { if :: tag[n] = 1 OR_KILLED fi };           /* 2 tag it dead: nobody reads from it any more */
    atomic { if :: tag[c] = 1 OR_KILLED fi };
    atomic { if :: tag[D] = 1 OR_KILLED fi };
#endif
#ifndef NO_CATCH_UP
    if                                                  /* 3 the survivor with most events comes first */
    :: atomic { top[c] > pos[n] && ON(ep[n], pos[n], ep[c]) ->
           assert(low[c] <= pos[n]); SUB(c, n) = MIN(gw[c], pos[n]) + 1 };
       atomic { if :: prov[n] = c OR_KILLED fi };
       atomic { if :: pos[n] >= top[c] OR_KILLED fi }
    :: atomic { top[c] <= pos[n] }
    fi;
#endif
    atomic {                                            /* 4 promote: reign, gravestone, survivors, open */
        if
        :: MINE(n) ->
            mint(ep[n], pos[n], new);
            ep[n] = new; typ[n] = ROOT; open[n] = 1; prov[n] = n;
#ifndef GRAVESTONE_LATE
            SUB(n, A) = fk[new] + 1;
#endif
#ifndef SUBSCRIBE_LATE
            SUB(n, c) = MIN(gw[n], pos[c]) + 1;
            if :: pos[D] <= pos[n] -> SUB(n, D) = MIN(gw[n], pos[D]) + 1 :: else fi;
#endif
            new = 0; check(n); rotate(n)
        :: !MINE(n) -> let_go(); goto again
        OR_KILLED
        fi
    };
promoted:
    atomic {                                            /* 5 the survivors read from the new root */
        if
        :: prov[c] == n
        :: prov[c] != n && ON(ep[c], pos[c], ep[n]) ->
            assert(low[n] <= pos[c]);                   /* it has what they need */
#ifdef SUBSCRIBE_LATE
            SUB(n, c) = pos[c] + 1;
#endif
            prov[c] = n; SUB(c, n) = 0
        :: prov[c] != n && !ON(ep[c], pos[c], ep[n]) -> assert(false)   /* no branch is left behind */
        OR_KILLED
        fi
    };
    atomic {
        if
        :: prov[D] == n
        :: prov[D] != n && ON(ep[D], pos[D], ep[n]) ->
            assert(low[n] <= pos[D]);
#ifdef SUBSCRIBE_LATE
            SUB(n, D) = pos[D] + 1;
#endif
            prov[D] = n
        :: prov[D] != n && !ON(ep[D], pos[D], ep[n]) -> /* a leaf that is beyond it: rejoin */
            prov[D] = n; SUB(n, D) = top[n] + 1; pos[D] = top[n]; ep[D] = ep[n]; tab[D] = TRUTH(top[n], ep[n])
        OR_KILLED
        fi;
        check(D)
    };
#ifdef GRAVESTONE_LATE
    atomic { if :: !SUB(n, A) -> assert(low[n] <= fk[ep[n]]); SUB(n, A) = fk[ep[n]] + 1 :: else fi };
#endif
end:
    let_go()
}
#endif

/* -- resurrect: the deposed root comes back ----------------------------------------------------------- */

#ifdef DEAD
proctype resurrect(byte n; byte me) {
    byte p, t, gone;
again:
    atomic {                                            /* 1 close */
        up[A] && typ[n] == ROOT && lk[A] == 0 ->
        lk[A] = me; p = fk[ep[n]];
        if
        :: typ[A] == BRANCH -> goto placed
        :: else -> open[A] = 0
        fi
    };
#ifndef NO_WAIT
    atomic { if :: up[A] && snap[A] == 0 OR_KILLED fi };        /* 2 drain */
#endif
    atomic {                                            /* 3 keep what only it had, and turn it */
        if
        :: up[A] && ins[A] == 0 && MINE(A) ->
            assert(low[A] <= p && !open[A]);
            gone = pend[A]; t = p + 1;
            do :: t <= top[A] -> gone = gone | q[A * T + t]; q[A * T + t] = 0; t = t + 1 :: else -> break od;
#ifndef KEEP_APART
            lost[A] = lost[A] | gone; gone = 0;
#endif
            t = 0; pend[A] = 0; top[A] = p; pos[A] = p; ep[A] = ep[n]; typ[A] = BRANCH; prov[A] = n; stale[A] = 1;
            gw[A] = low[A]
        :: up[A] && !MINE(A) -> let_go(); goto again
        OR_KILLED
        fi
    };
#ifdef KEEP_APART
    atomic { if :: lost[A] = lost[A] | gone; gone = 0 OR_KILLED fi };
#endif
placed:
    atomic {                                            /* 4 repair: equal at one tick, the position locked */
        if
        :: up[A] ->
#ifndef NO_REPAIR
            if :: stale[A] -> tab[A] = TRUTH(pos[A], ep[A]) :: else fi;
#endif
            stale[A] = 0; p = 0;
            check(A)
        OR_KILLED
        fi
    };
    let_go()
}
#endif

/* -- the end: nothing moves any more ------------------------------------------------------------------ */

inline same(n, r) {
    assert(pos[n] == top[r] && ON(ep[n], pos[n], ep[r]) && tab[n] == tab[r] && !stale[n])
}

proctype judge() {
    byte r;
    atomic {
        timeout ->
#if defined(RIVALS)
        assert(!(open[B] && open[C]));                  /* two people have not made two roots */
        r = (open[B] -> B : (open[C] -> C : A));
        if
        :: r != A -> same(D, r); if :: r == B -> same(C, r) :: else -> same(B, r) fi
        :: else
        fi
#elif defined(DEAD)
        r = B;
        assert(open[B] && !open[A]);
        same(A, r); same(C, r); same(D, r);
        /* what is committed is on all nodes, or kept by resurrect; never both, never neither */
        assert((tab[r] | lost[A]) == written && !(tab[r] & lost[A]))
#else
        assert(open[A] + open[B] == 1);
        r = (open[A] -> A : B);
#ifdef BEGUN
        assert((tab[r] | lost[A]) == written && !(tab[r] & lost[A]));
#else
        assert(tab[r] == written);
#endif
        if :: r == A -> same(B, r) :: else -> same(A, r) fi;
#if N > 2
        same(D, r);
#endif
        skip
#endif
    }
}

init {
    byte n;
    atomic {
        do
        :: n < N ->
            typ[n] = BRANCH; prov[n] = A; pos[n] = 1; top[n] = 1; low[n] = 1; gw[n] = 1; up[n] = 1;
            if :: n != A -> SUB(A, n) = 2 :: else fi;
            n = n + 1
        :: else -> break
        od;
        n = 0;
        typ[A] = ROOT; open[A] = 1;
#if N > 2
        typ[D] = LEAF;
#endif
        run ticker(); run judge();
#if defined(DEAD) || defined(RIVALS)
        run network();
#endif
        run worker(A); run worker(B);
#if N > 2
        run worker(D);
#endif
#if N > 3
        run worker(C);
#endif
        run writer(0);
#if defined(LIVE)
        run old_writer(1); run writer(2);
        run takeover(A, B); run abort(A, B);
#elif defined(BACK)
        run writer(1);
        run takeover(A, B); run back();
#elif defined(TWO)
        run old_writer(1);
        run takeover(A, B); run takeover(A, B); run abort(A, B); run abort(A, B);
#elif defined(BEGUN)
        run writer(1);
        run takeover(A, B); run abort(A, B); run fall(); run come_back(B);
#elif defined(DEAD)
#ifdef LATE
        run old_writer(1);
#else
        run writer(1);
#endif
        run killer(); run failover(B, C, 1); run resurrect(B, 2);
#elif defined(RIVALS)
        run failover(B, C, 1); run failover(C, B, 2);
#endif
    }
}
