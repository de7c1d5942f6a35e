/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HANGUP_H
#define TDD_HANGUP_H

/* Close a connection so that the peer still reads what was sent last. */
void tdd_hang_up(int socket_fd);

#endif
