# SPDX-License-Identifier: Apache-2.0
"""One file for each framework: the same memory as its tensor, or an error that says why not."""
