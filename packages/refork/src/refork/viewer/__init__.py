"""Pictures and pages of trees and runs."""
