# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of scripts/test and adds up what they found."""
